#!/usr/bin/env python3
"""Encoding speed of Manta and of Hugging Face `tokenizers`, one thread each, on the same 10 MB of mixed text, in one run.

  tokenizer_vs_hf.py [--program build/bin/bench_tokenizer] [--shared ../shared] [NAME ...]

Prints a line a tokenizer: MB/s of both, their ratio, and whether the ids are the same. Fails where they are not. Hugging
Face's faster entry is taken (encode_batch_fast: ids without offsets). Needs: pip install tokenizers
"""
import argparse
import array
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402

TARGET = 10_000_000


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)


def documents(shared):
    """English prose, mathematics, Chinese, code, dialogues, tool calls: each file once."""
    data = shared / "data"
    play = (data / "tinyshakespeare/input.txt").read_text()
    yield from (play[i : i + 8192] for i in range(0, len(play), 8192))
    for name in ["llamafactory/alpaca_zh_demo.json", "llamafactory/alpaca_en_demo.json", "llamafactory/glaive_toolcall_en_demo.json"]:
        for record in json.loads((data / name).read_text()):
            yield "\n".join(strings(record))
    for name in ["gsm8k/test.jsonl", "math500/test.jsonl", "code/mbpp.jsonl", "llamafactory/c4_demo.jsonl",
                 "preference/ultrafeedback_sample_1k.jsonl", "gsm8k/train.jsonl"]:
        for line in (data / name).open():
            yield "\n".join(strings(json.loads(line)))
    with gzip.open(data / "hh-rlhf/harmless-base-test.jsonl.gz", "rt") as lines:
        for line in lines:
            yield "\n".join(strings(json.loads(line)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/bin/bench_tokenizer")
    parser.add_argument("--shared", type=pathlib.Path, default=pathlib.Path("../shared"))
    parser.add_argument("names", nargs="*", default=["gpt2", "qwen2", "llama3"])
    args = parser.parse_args()
    texts, size = [], 0
    for text in documents(args.shared):
        text = text.replace("\0", "")
        if not text or size >= TARGET:
            continue
        texts.append(text)
        size += len(text.encode())
    same = True
    for name in args.names:
        with tempfile.TemporaryDirectory() as folder:
            path, ids_path = pathlib.Path(folder) / "texts", pathlib.Path(folder) / "ids"
            path.write_bytes("\0".join(texts).encode())
            tokenizer_dir = args.shared / "data" / name
            out = subprocess.run([args.program, tokenizer_dir, path, ids_path], check=True, capture_output=True, text=True).stdout
            ours = dict(re.findall(r"(\w+)=([\d.]+)", out))
            got = array.array("i", ids_path.read_bytes())
        start = time.perf_counter()
        tokenizer = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
        load = time.perf_counter() - start
        start = time.perf_counter()
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        hf = time.perf_counter() - start
        want = array.array("i", [i for e in encoded for i in e.ids])
        equal = got == want
        same = same and equal
        first = float(ours["first_seconds"])
        print(f"{name}: {size / 1e6:.2f} MB, {len(texts)} documents, {len(want)} tokens; Manta {size / first / 1e6:.1f} MB/s "
              f"(second pass {size / float(ours['second_seconds']) / 1e6:.1f}), Hugging Face {size / hf / 1e6:.1f} MB/s: "
              f"{hf / first:.1f} times; loading {float(ours['load_seconds']):.2f} s against {load:.2f} s; "
              f"ids {'equal' if equal else 'DIFFER'}", flush=True)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
