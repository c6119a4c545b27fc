#!/usr/bin/env python3
"""A GRPO step of the quickstart: Manta against TRL's GRPOTrainer, same model, prompts, group size and lengths, in one run.

    python tests/bench/grpo_vs_trl.py [--build build] [--steps 20]

Needs a Python with torch, transformers, datasets and trl. Both sides start from assets/quickstart/model and take the same
number of steps on this machine's CPU threads; the median step time of each is printed with their ratio. TRL's clock is
between its on_step_begin and on_step_end callbacks (generation, reward, loss, optimiser); Manta's is
timing/train/total_step_time of metrics.jsonl (the same, with log-probabilities, weight sync and all processes' messages).
Exit code 1 below a ratio of 5.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"
ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPTS, GROUP, NEW_TOKENS, WARMUP = 16, 16, 6, 3


def manta_steps(build, steps):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        subprocess.run(
            [build / "bin/manta", "run", ROOT / "configs/quickstart_grpo.yaml", f"logger.log_dir={folder}/logs",
             "checkpointing.enabled=false", f"grpo.max_num_steps={steps}", "grpo.val_period=0", "grpo.val_at_start=false",
             "grpo.val_at_end=false", f"grpo.num_prompts_per_step={PROMPTS}",
             f"grpo.num_generations_per_prompt={GROUP}", f"policy.generation.max_new_tokens={NEW_TOKENS}"],
            check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        lines = (pathlib.Path(folder) / "logs/latest/metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["timing/train/total_step_time"] for line in lines]


def trl_steps(steps, threads):
    import torch
    torch.set_num_threads(threads)
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    model_dir = str(ROOT / "assets/quickstart/model")
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    rows = [json.loads(line) for line in (ROOT / "assets/quickstart/data/grpo_train.jsonl").read_text().splitlines()]
    dataset = Dataset.from_list([{"prompt": row["input"], "answer": row["output"]} for row in rows])
    times = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *args, **kwargs):
            self.begin = time.perf_counter()

        def on_step_end(self, *args, **kwargs):
            times.append(time.perf_counter() - self.begin)

    def reward(completions, answer, **kwargs):
        return [float(c.strip() == a) for c, a in zip(completions, answer)]

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        config = GRPOConfig(output_dir=folder, use_cpu=True, per_device_train_batch_size=PROMPTS * GROUP,
                            num_generations=GROUP, max_completion_length=NEW_TOKENS, max_steps=steps, learning_rate=1e-4,
                            beta=0.0, temperature=1.0, report_to=[], save_strategy="no", logging_steps=10**6,
                            disable_tqdm=True)
        GRPOTrainer(model=model, args=config, processing_class=tokenizer, train_dataset=dataset, reward_funcs=reward,
                    callbacks=[Clock()]).train()
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    # In turns, so that a machine whose speed drifts is unfair to neither.
    ours, theirs = [], []
    for _ in range(2):
        ours += manta_steps(args.build, args.steps)[WARMUP:]
        theirs += trl_steps(args.steps, args.threads)[WARMUP:]
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"manta {a:.4f} s/step   trl {b:.4f} s/step   ratio {b / a:.2f}   ({len(ours)} and {len(theirs)} steps, "
          f"{args.threads} threads)")
    raise SystemExit(0 if b / a >= 5 else 1)


if __name__ == "__main__":
    main()
