#!/usr/bin/env python3
"""Generator against transformers' `generate` on the CPU: tokens per second, in alternation, in one run.

    generator_vs_hf.py --model DIR [--bench build/bin/bench_generator] [--threads 2] [--prompts 32] [--new-tokens 128]

Both get the same prompts, the same number of threads, no early end, and a round to warm up. Each turn runs one after the
other, never at the same time. With temperature 0 the tokens are compared too. Exit code 1 where the generator is less
than --at-least times as fast, or tokens differ.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a Hugging Face folder")
    parser.add_argument("--bench", default="build/bin/bench_generator")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--prompt-tokens", type=int, default=20)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--turns", type=int, default=5, help="how often the two alternate")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--at-least", type=float, default=5.0)
    return parser.parse_args()


def main():
    args = parse_arguments()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(3, model.config.vocab_size, (args.prompts, args.prompt_tokens), generator=generator)
    options = dict(max_new_tokens=args.new_tokens, min_new_tokens=args.new_tokens, pad_token_id=0)
    if args.temperature > 0:
        options.update(do_sample=True, temperature=args.temperature, top_k=0, top_p=1.0)
    else:
        # The length alone ends a sample: a minimum length would ban the end-of-sequence token from being drawn.
        options.update(do_sample=False, min_new_tokens=None, eos_token_id=-1)
    num_tokens = args.prompts * args.new_tokens

    def run_transformers():
        with torch.inference_mode():
            start = time.perf_counter()
            output = model.generate(prompts, attention_mask=torch.ones_like(prompts), **options)
            seconds = time.perf_counter() - start
        return num_tokens / seconds, output[:, args.prompt_tokens:].tolist()

    def run_manta(prompt_file):
        command = [args.bench, "--json", "--model", args.model, "--prompt-file", prompt_file, "--threads",
                   str(args.threads), "--new-tokens", str(args.new_tokens), "--temperature", str(args.temperature),
                   "--rounds", "1"]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)
        return result["tokens_per_second"][0], result["tokens"]

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(prompts.tolist(), file)
        file.flush()
        run_transformers()
        theirs, ours = [], []
        for turn in range(args.turns):
            speed, their_tokens = run_transformers()
            theirs.append(speed)
            speed, our_tokens = run_manta(file.name)
            ours.append(speed)
            print(f"turn {turn + 1}: transformers {theirs[-1]:8.0f} tokens/s, generator {ours[-1]:8.0f} tokens/s, "
                  f"{ours[-1] / theirs[-1]:.1f} times")
    # The medians: other work on the machine slows single turns down.
    ratio = statistics.median(ours) / statistics.median(theirs)
    same = args.temperature > 0 or our_tokens == their_tokens
    print(f"{args.prompts} prompts of {args.prompt_tokens} tokens, {args.new_tokens} new tokens, {args.threads} threads")
    print(f"median: transformers {statistics.median(theirs):.0f} tokens/s, generator {statistics.median(ours):.0f} "
          f"tokens/s: {ratio:.1f} times (best turn of each: {max(ours) / max(theirs):.1f} times)")
    if args.temperature == 0:
        print("tokens: " + ("equal" if same else "they differ"))
    sys.exit(0 if ratio >= args.at_least and same else 1)


if __name__ == "__main__":
    main()
