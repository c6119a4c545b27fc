#!/usr/bin/env python3
"""Golden values for tokenizers, computed with Hugging Face `tokenizers` (0.23).

  generate.py
      Makes the set in this folder anew: data/NAME/tokenizer.json (small tokenizers trained here on a few sentences, one a
      setting) and NAME.jsonl (texts with what `tokenizers` makes of them).
  generate.py --data D --out O [--cases N] [--seed S]
      Writes O/NAME.jsonl for every D/NAME/tokenizer.json, from random texts.

The form of the lines is that of golden_tokenizers.cc. Needs: pip install tokenizers
"""
import argparse
import copy
import json
import pathlib
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Regex

HERE = pathlib.Path(__file__).parent

CORPUS = """The baker had 12 loaves and sold 7 of them; how many are left? There are 12 - 7 = 5 loaves left.
A train leaves at 9:45 and arrives at 11:20, so it's travelling for 95 minutes. They'll be there soon, won't they?
We've counted 1,234,567 grains of sand; I'd say that's enough. You're right, she'd say, but he's not so sure.
def add(a, b):\n    return a + b\n\nfor i in range(10):\n    print(i, add(i, 1))\n
Ein Bäcker hatte zwölf Brote und verkaufte sieben davon. Wie viele bleiben übrig? L'été dernier, l'élève a mangé des pâtes.
Пекарь испёк двенадцать хлебов и продал семь. 面包师有十二个面包，卖了七个，还剩五个。パン屋さんは十二個のパンを持っていました。
https://example.org/a?b=c&d=e#f   x^2 + y^2 = z^2   $3.50   50%   (a|b)*   <p class="x">text</p>
"""

WORDS = CORPUS.split() + [
    "don't", "DON'T", "it'ſ", "I'M", "we'LL", "'s", "'", "''", "naïve", "nai\u0308ve", "Å", "A\u030a", "Ω", "ﬁne", "①②③", "½",
    "Ⅷ", "٣٤٥", "१२३", "\u0e01\u0e33", "각", "\u1100\u1161\u11a8", "한국어", "العربية", "עברית", "ไทย", "😀", "👩‍👩‍👧", "🇩🇪", "👍🏽", "\u200d",
    "\u00ad", "\ufeff", "\u180e", "\u0085", "\u2028", "\u3000", "\u00a0", "_", "__init__", "a_b", "▁", "▁▁x", "Ġ", "Ċ", "<0x41>",
    "\u0000", "\u0001", "\u007f", "\ufffd", "İstanbul", "ǅ", "ß", "e\u0301\u0323", "\u0323\u0301", "\u0344", "\u0958", "豈", "\U0001d15e", "\u1e9b\u0323",
    "...", "?!", "--", "———", "«x»", "“q”", "{}", "[]", "#", "\\n", "100000", "3.14159", "0x1F", "1e-5", "٪", "℃", "\U0001f130", "Ⓐ",
    "\u0378", "\U00010d4a", "\U0001ccf3", "\U0003fffd", "\ue000", "\u20e3", "x\u20dd",
]
SPACES = [" "] * 12 + ["  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", " \n", "\n ", " \t ", "\u00a0", "\u3000", "\u2003 ", "        ", ""]
RANGES = [(0x20, 0x7E)] * 4 + [(0, 0x1F), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x900, 0xDFF), (0x1100, 0x11FF),
          (0x1E00, 0x22FF), (0x2460, 0x27BF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFD),
          (0x10000, 0x10FFF), (0x1D100, 0x1D7FF), (0x1F000, 0x1FAFF), (0x20000, 0x2FA1F)]


def random_text(rng, special):
    kind = rng.random()
    n = rng.choice([0, 1, 1, 2, 3, 5, 8, 13, 30, 80])
    parts = []
    for _ in range(n):
        if special and rng.random() < 0.12:
            token = rng.choice(special)
            cut = rng.random()
            parts.append(token if cut < 0.8 else token[:-1] if cut < 0.9 else token.upper())
        if kind < 0.55:
            parts.append(rng.choice(WORDS))
        elif kind < 0.8:
            low, high = rng.choice(RANGES)
            parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6))))
        else:
            parts.append(rng.choice("abcdefghijklmnopqrstuvwxyz' 0123456789\n\r\t.,-_" + "éßжд中文😀\u0301") * rng.choice([1, 1, 1, 2, 3, 40]))
        if rng.random() < 0.75:
            parts.append(rng.choice(SPACES))
    return "".join(parts)


def golden(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    line = {"text": text, "ids": ids}
    with_special = tokenizer.encode(text, add_special_tokens=True).ids
    if with_special != ids:
        line["ids_with_special"] = with_special
    decoded = tokenizer.decode(ids, skip_special_tokens=False)
    if decoded != text:
        line["decoded"] = decoded
    skipped = tokenizer.decode(ids, skip_special_tokens=True)
    if skipped != decoded:
        line["decoded_skip_special"] = skipped
    return line


def write_goldens(tokenizer, path, cases, seed):
    rng = random.Random(seed)
    special = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    texts = ["", " ", "\n", CORPUS] + [random_text(rng, special) for _ in range(cases)]
    with open(path, "w") as out:
        for text in texts:
            out.write(json.dumps(golden(tokenizer, text)) + "\n")


def train_byte_level(vocab_size=420):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<|end|>"], show_progress=False)
    tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
    return tokenizer


def train_sentencepiece_style(vocab_size=480):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=["<unk>", "<s>", "</s>"] + byte_tokens,
                                  limit_alphabet=70, show_progress=False)
    tokenizer.train_from_iterator([w for line in CORPUS.splitlines() for w in line.split(" ")], trainer)
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = spec["added_tokens"][:3]  # byte tokens are the model's, not to be found in texts
    return spec


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
OTHER = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,2}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level_json():
    return json.loads(train_byte_level().to_str())


def token(spec, content, **flags):
    """Adds a token at the next free id."""
    next_id = max(len(spec["model"]["vocab"]), 1 + max((t["id"] for t in spec["added_tokens"]), default=-1))
    entry = dict(id=spec["model"]["vocab"].get(content, next_id), content=content, single_word=False, lstrip=False,
                 rstrip=False, normalized=False, special=False)
    spec["added_tokens"].append(entry | flags)
    return entry["id"]


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(**flags):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False} | flags


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def variants():
    byte_spec, sp_spec = byte_level_json(), train_sentencepiece_style()

    def make(base, **fields):
        spec = copy.deepcopy(base)
        spec.update(fields)
        return spec

    gpt2 = make(byte_spec)
    gpt2["model"]["merges"] = [" ".join(m) for m in gpt2["model"]["merges"]]  # the older way to write merges
    yield "byte_gpt2", gpt2

    qwen = make(byte_spec, normalizer={"type": "NFC"}, pre_tokenizer=sequence("pretokenizers", split(QWEN2), byte_level()))
    for content in ("<|im_start|>", "<|im_end|>"):
        token(qwen, content, special=True)
    token(qwen, "<tool_call>")
    yield "byte_qwen", qwen

    llama = make(byte_spec, pre_tokenizer=sequence("pretokenizers", split(LLAMA3), byte_level()))
    llama["model"]["ignore_merges"] = True
    llama["model"]["vocab"]["Ġzwölf".replace("ö", "Ã¶")] = len(llama["model"]["vocab"])  # no merges lead to it
    bos = token(llama, "<|begin_of_text|>", special=True)
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [bos], "tokens": ["<|begin_of_text|>"]}}}
    llama["post_processor"] = sequence("processors", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False,
                                                      "use_regex": True}, template)
    yield "byte_llama3", llama

    other = make(byte_spec, normalizer=sequence("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}),
                 pre_tokenizer=sequence("pretokenizers", split(OTHER, "Removed", True), byte_level()))
    token(other, "Straße", normalized=True)
    token(other, "Two Words", normalized=True, single_word=True)
    yield "byte_regex", other

    digits = make(byte_spec, pre_tokenizer=sequence("pretokenizers", {"type": "Digits", "individual_digits": True},
                                                    byte_level(use_regex=True, add_prefix_space=True)))
    token(digits, "<mask>", lstrip=True)
    token(digits, "<right>", rstrip=True, special=True)
    token(digits, "<both>", lstrip=True, rstrip=True, single_word=True)
    token(digits, "word", single_word=True)
    token(digits, "  ")
    yield "byte_digits", digits

    middle = make(byte_spec, pre_tokenizer=sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"},
                                                    byte_level(use_regex=True), split("Ġ", "MergedWithNext", kind="String")))
    yield "byte_in_the_middle", middle

    for behavior in ("Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield "split_" + behavior.lower(), make(
            byte_spec, pre_tokenizer=sequence("pretokenizers", split(r"\s|[\p{P}\w]x?", behavior), byte_level()))
        yield "split_inverted_" + behavior.lower(), make(
            byte_spec, pre_tokenizer=sequence("pretokenizers", split(r"\w+", behavior, True), byte_level()))

    yield "sp_llama2", make(sp_spec)
    legacy = make(sp_spec)
    for entry in legacy["added_tokens"]:
        entry["normalized"] = True
    token(legacy, "<pad> x", normalized=True)
    yield "sp_normalized_added", legacy
    for scheme in ("always", "first", "never"):
        for do_split in (True, False):
            metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": do_split}
            yield f"sp_metaspace_{scheme}_{'split' if do_split else 'whole'}", make(
                sp_spec, normalizer=None if do_split else {"type": "Strip", "strip_left": True, "strip_right": True},
                pre_tokenizer=metaspace, decoder=metaspace)
    no_bytes = make(sp_spec, normalizer=sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"},
                                                 {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "▁"}),
                    decoder=sequence("decoders", {"type": "Replace", "pattern": {"Regex": "▁+"}, "content": " "},
                                     {"type": "Strip", "content": "e", "start": 0, "stop": 1}))
    no_bytes["model"]["byte_fallback"] = False
    yield "sp_fused_unknown", no_bytes
    unfused = make(sp_spec, normalizer={"type": "NFKD"}, pre_tokenizer={"type": "WhitespaceSplit"}, decoder=None)
    unfused["model"] |= {"byte_fallback": False, "fuse_unk": False}
    yield "sp_unknown", unfused
    dropped = make(sp_spec, normalizer=None, pre_tokenizer={"type": "Whitespace"}, decoder={"type": "Fuse"})
    dropped["model"] |= {"byte_fallback": False, "unk_token": None}
    yield "sp_dropped", dropped
    roberta = make(byte_spec, pre_tokenizer=byte_level(use_regex=True, add_prefix_space=True))
    cls, sep = token(roberta, "<s>", special=True), token(roberta, "</s>", special=True)
    roberta["post_processor"] = {"type": "RobertaProcessing", "sep": ["</s>", sep], "cls": ["<s>", cls],
                                 "trim_offsets": True, "add_prefix_space": True}
    yield "byte_roberta", roberta


def make_repository_set(cases):
    for name, spec in variants():
        folder = HERE / "data" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False, separators=(",", ":")) + "\n")
        write_goldens(Tokenizer.from_file(str(folder / "tokenizer.json")), HERE / f"{name}.jsonl", cases, name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.data is None:
        make_repository_set(args.cases or 12)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(args.data.glob("*/tokenizer.json")):
        write_goldens(Tokenizer.from_file(str(path)), args.out / f"{path.parent.name}.jsonl", args.cases or 300, args.seed)


if __name__ == "__main__":
    main()
