#!/usr/bin/env python3
"""Makes the quickstart's data and tokenizer: sums of two-digit numbers, byte by byte.

    scripts/make_quickstart_data.py assets/quickstart

Writes data/{sft_train,sft_validation,grpo_train,validation}.jsonl and tokenizer/. The sets are disjoint: no problem of the
validation set is in either training set, and GRPO trains on problems that SFT never saw. A fixed seed gives the same
bytes every time. Needs the standard library only.
"""
import json
import pathlib
import random
import sys

SEED = 20260101
NUM_VALIDATION, NUM_SFT_VALIDATION, NUM_SFT = 400, 256, 4000


def problems():
    return [(f"{a}+{b}=", a + b) for a in range(10, 100) for b in range(10, 100)]


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def conversation(problem, answer):
    return {"messages": [{"role": "user", "content": problem}, {"role": "assistant", "content": str(answer)}]}


def byte_alphabet():
    """GPT-2's one printable character for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    table = {b: chr(b) for b in printable}
    table.update({b: chr(256 + i) for i, b in enumerate(others)})
    return [table[b] for b in range(256)]


def tokenizer():
    special = ["<|pad|>", "<|end|>"]
    vocab = {token: i for i, token in enumerate(special + byte_alphabet())}
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, token in enumerate(special)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": []},
    }


TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- message['content'] -}}"
    "{%- if message['role'] == 'assistant' -%}{{- eos_token -}}{%- endif -%}"
    "{%- endfor -%}"
)


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "assets/quickstart")
    everything = problems()
    random.Random(SEED).shuffle(everything)
    validation = everything[:NUM_VALIDATION]
    rest = everything[NUM_VALIDATION:]
    sft_validation, sft, grpo = rest[:NUM_SFT_VALIDATION], rest[NUM_SFT_VALIDATION:][:NUM_SFT], \
        rest[NUM_SFT_VALIDATION + NUM_SFT:]
    data = out / "data"
    data.mkdir(parents=True, exist_ok=True)
    write_jsonl(data / "validation.jsonl", [{"input": p, "output": str(a)} for p, a in validation])
    write_jsonl(data / "grpo_train.jsonl", [{"input": p, "output": str(a)} for p, a in grpo])
    write_jsonl(data / "sft_train.jsonl", [conversation(*p) for p in sft])
    write_jsonl(data / "sft_validation.jsonl", [conversation(*p) for p in sft_validation])

    folder = out / "tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(), ensure_ascii=False, indent=1) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": None, "eos_token": "<|end|>", "pad_token": "<|pad|>",
        "clean_up_tokenization_spaces": False, "model_max_length": 64, "chat_template": TEMPLATE}, indent=1) + "\n")


if __name__ == "__main__":
    main()
