#!/usr/bin/env python3
"""Whether checkpoints that Manta writes open in Hugging Face transformers with the logits of what it read.

    python rewrite_vs_hf.py build/bin/rewrite_model MODEL_DIR...      (needs torch and transformers)
"""
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM


def logits(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.arange(3, 27)[None] * 5 % model.config.vocab_size
    with torch.no_grad():
        return model(ids).logits


for source in sys.argv[2:]:
    expected = logits(source)
    for dtype in ["fp32", "bf16"]:
        with tempfile.TemporaryDirectory() as out:
            subprocess.run([sys.argv[1], source, out, dtype], check=True)
            difference = (logits(out) - expected).abs().max().item()
            files = sorted(p.name for p in pathlib.Path(out).iterdir())
        print(f"{source} {dtype}: largest difference of a logit {difference:.3g}, {len(files)} files")
        assert difference <= (0 if dtype == "fp32" else 0.1)
