#!/usr/bin/env python3
"""Golden values for two tiny models with random weights, computed with Hugging Face transformers on a CPU in float32.

    python generate.py        writes the folders beside this file

They cover what is easily forgotten: biases on every projection, linear rotary scaling, an untied head (llama_biases); a
sliding window from the second layer on, dynamic rotary scaling beyond the trained length, tied embeddings (qwen2_window).
Made with torch 2.11.0, transformers 5.17.0, safetensors 0.8.0; users need none of them.
"""
import json
import os
import pathlib

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
LENGTHS, NEW_TOKENS = [3, 11, 18], 8
ATOL = {"logits": 5e-5, "logprobs": 2e-5, "generated_logprobs": 2e-5, "grad": 1e-5, "loss": 5e-6}
BASE = dict(vocab_size=41, hidden_size=24, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, bos_token_id=1, eos_token_id=2, attn_implementation="eager")
MODELS = {
    "llama_biases": (LlamaForCausalLM, LlamaConfig(
        **BASE, head_dim=6, max_position_embeddings=64, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="linear", factor=3.0, rope_theta=10000.0), tie_word_embeddings=False)),
    "qwen2_window": (Qwen2ForCausalLM, Qwen2Config(
        **BASE, max_position_embeddings=16, use_sliding_window=True, sliding_window=5, max_window_layers=1,
        rope_parameters=dict(rope_type="dynamic", factor=2.0, rope_theta=10000.0), tie_word_embeddings=True)),
}


def next_log_probs(model, ids):
    return torch.log_softmax(model(ids[None]).logits[0], -1)


def write(name, kind, config, seed):
    model = kind(config).eval()
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, p in sorted(model.named_parameters()):
            z = torch.randn(p.shape, generator=rng)
            p.copy_(1 + 0.2 * z if "norm" in key else 0.1 * z if key.endswith("bias") else z / p.shape[-1] ** 0.5)
    inputs = [torch.randint(3, config.vocab_size, (n,), generator=rng) for n in LENGTHS]
    out, generated, gap = {}, [], 1.0
    with torch.no_grad():
        for i, ids in enumerate(inputs):
            log_p = next_log_probs(model, ids)
            out[f"input_ids.{i}"] = ids
            out[f"logits.{i}"] = model(ids[None]).logits[0].clone()
            out[f"logprobs.{i}"] = log_p[:-1].gather(1, ids[1:, None])[:, 0].clone()
            tokens, log_probs = ids, []
            for _ in range(NEW_TOKENS):
                top = next_log_probs(model, tokens)[-1].topk(2)
                gap = min(gap, (top.values[0] - top.values[1]).item())
                tokens = torch.cat([tokens, top.indices[:1]])
                log_probs.append(top.values[0])
            generated.append(tokens[len(ids):].tolist())
            out[f"generated_logprobs.{i}"] = torch.stack(log_probs)
    if gap < 1e-3:
        return False  # rounding could change a greedy choice: another seed
    loss = -torch.cat([next_log_probs(model, ids)[:-1].gather(1, ids[1:, None])[:, 0] for ids in inputs]).mean()
    loss.backward()
    for key, p in model.named_parameters():
        out["grad." + key] = p.grad.clone()
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    # As a checkpoint on the Hub: transformers writes config.json, the tied head is left out.
    config.dtype = "float32"
    config.architectures = [kind.__name__]
    config.save_pretrained(folder)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    state = {k: v.clone() for k, v in model.state_dict().items() if k not in tied}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    save_file({k: v.contiguous() for k, v in out.items()}, folder / "golden.safetensors", metadata={"format": "pt"})
    golden = dict(model=name, seed=seed, lengths=LENGTHS, input_ids=[x.tolist() for x in inputs], generated=generated,
                  loss=loss.item(), min_greedy_gap=gap, suggested_atol=ATOL)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    return True


torch.set_num_threads(1)
for number, (name, (kind, config)) in enumerate(MODELS.items()):
    seed = next(s for s in range(100 * number, 100 * number + 100) if write(name, kind, config, s))
    print(name, "seed", seed)
