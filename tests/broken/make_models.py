#!/usr/bin/env python3
"""Writes the broken models, checkpoints and tokenizers of this folder: each is a small good one with one thing wrong."""
import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 8,
          "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
          "torch_dtype": "float32"}
LAYER = "model.layers.0."
SHAPES = {"model.embed_tokens.weight": [64, 8], "model.norm.weight": [8],
          LAYER + "input_layernorm.weight": [8], LAYER + "post_attention_layernorm.weight": [8],
          LAYER + "self_attn.q_proj.weight": [8, 8], LAYER + "self_attn.k_proj.weight": [4, 8],
          LAYER + "self_attn.v_proj.weight": [4, 8], LAYER + "self_attn.o_proj.weight": [8, 8],
          LAYER + "mlp.gate_proj.weight": [8, 8], LAYER + "mlp.up_proj.weight": [8, 8], LAYER + "mlp.down_proj.weight": [8, 8]}


def header(shapes):
    out, at = {}, 0
    for name, shape in shapes.items():
        size = 4
        for n in shape:
            size *= n
        out[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return out, at


def safetensors(head, size):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(size)


def write(path, content):
    path = os.path.join(HERE, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def model(name, config=None, weights=None, **changes):
    if config is None:
        config = dict(CONFIG, **changes)
        config = json.dumps({k: v for k, v in config.items() if v != "absent"})
    write(f"models/{name}/config.json", config)
    if weights is not None:
        write(f"models/{name}/model.safetensors", weights)


def models():
    head, size = header(SHAPES)
    good = safetensors(head, size)
    write("models/no_config/model.safetensors", good)
    model("config_not_json", config='{"architectures": ["LlamaForCausalLM"], ', weights=good)
    model("config_a_list", config="[]", weights=good)
    model("unknown_architecture", weights=good, architectures=["GPTBigCodeForCausalLM"], model_type="gpt_bigcode")
    model("no_hidden_size", weights=good, hidden_size="absent")
    model("hidden_size_text", weights=good, hidden_size="eight")
    model("negative_layers", weights=good, num_hidden_layers=-1)
    model("heads_do_not_divide", weights=good, num_attention_heads=4, num_key_value_heads=3)
    model("unknown_rope", weights=good, rope_scaling={"rope_type": "spiral", "factor": 2.0})
    model("no_weights")
    model("empty_weights", weights=b"")
    model("truncated", weights=good[:-100])
    model("header_too_long", weights=struct.pack("<Q", 1 << 60) + good[8:])
    model("header_not_json", weights=safetensors(b'{"a": {', 0))
    model("trailing_bytes", weights=good + b"junk")

    def changed(name, **fields):
        changed_head = json.loads(json.dumps(head))
        changed_head[name].update(fields)
        return safetensors(changed_head, size)

    q = LAYER + "self_attn.q_proj.weight"
    begin, end = head[q]["data_offsets"]
    model("unknown_dtype", weights=changed(q, dtype="F12"))
    model("overlap", weights=changed(q, data_offsets=[begin - 64, end - 64]))
    model("hole", weights=changed(q, shape=[4, 8], data_offsets=[begin, end - 128]))
    model("size_is_not_shape", weights=changed(q, shape=[8, 9]))
    model("offsets_reversed", weights=changed(q, data_offsets=[end, begin]))
    model("huge_shape", weights=changed(q, shape=[1 << 40, 1 << 40]))
    model("wrong_shape", weights=changed(q, shape=[4, 16]))
    text = json.dumps(head)
    model("duplicate_tensor", weights=safetensors((text[:-1] + ', "model.norm.weight": '
                                                   + json.dumps(head["model.norm.weight"]) + "}").encode(), size))
    less = {k: v for k, v in SHAPES.items() if k != LAYER + "mlp.up_proj.weight"}
    model("missing_tensor", weights=safetensors(*header(less)))
    model("missing_shard")
    write("models/missing_shard/model.safetensors.index.json",
          json.dumps({"metadata": {"total_size": size}, "weight_map": {k: "model-00001-of-00002.safetensors" for k in SHAPES}}))
    model("index_not_json")
    write("models/index_not_json/model.safetensors.index.json", "{")
    model("small_vocabulary", vocab_size=2)
    model("integer_weights", weights=changed(q, dtype="I32"))
    model("generation_config_text", weights=good)
    write("models/generation_config_text/generation_config.json", '{"eos_token_id": "end"}')


def checkpoints():
    info = {"step": 3, "consumed_samples": 24, "epoch": 0, "position": 24, "data_seed": 42, "weight_version": 4,
            "metric": None, "metrics": {}}
    write("checkpoints/no_information/step_3/config.yaml", "grpo: {}")
    write("checkpoints/information_not_json/step_3/training_info.json", '{"step": ')
    state = "policy/optimizer/trainer_state.json"
    for name, optimizer in [("without_optimizer", False), ("without_weights", True)]:
        write(f"checkpoints/{name}/step_3/training_info.json", json.dumps(info))
        write(f"checkpoints/{name}/step_3/{state}", json.dumps({"format": 1, "step": 3, "schedule_step": 3,
                                                               "optimizer": optimizer}))


def tokenizers():
    with open(os.path.join(HERE, "../../assets/quickstart/tokenizer/tokenizer.json")) as file:
        good = json.load(file)
    with open(os.path.join(HERE, "../../assets/quickstart/tokenizer/tokenizer_config.json")) as file:
        settings = json.load(file)

    def tokenizer(name, content, config=None):
        write(f"tokenizers/{name}/tokenizer.json", content if isinstance(content, str) else json.dumps(content))
        config = settings if config is None else config
        write(f"tokenizers/{name}/tokenizer_config.json", config if isinstance(config, str) else json.dumps(config))

    def with_model(**fields):
        return dict(good, model=dict(good["model"], **fields))

    write("tokenizers/no_tokenizer_json/tokenizer_config.json", json.dumps(settings))
    tokenizer("not_json", '{"model": ')
    tokenizer("a_list", [])
    tokenizer("no_model", {k: v for k, v in good.items() if k != "model"})
    tokenizer("wordpiece", with_model(type="WordPiece"))
    tokenizer("vocabulary_a_list", with_model(vocab=["a", "b"]))
    tokenizer("merge_of_unknown_tokens", with_model(merges=[["qq", "zz"]]))
    tokenizer("id_text", with_model(vocab=dict(good["model"]["vocab"], extra="seven")))
    tokenizer("bad_regex", dict(good, pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated",
                                                     "invert": False}))
    tokenizer("unknown_pre_tokenizer", dict(good, pre_tokenizer={"type": "Guess"}))
    tokenizer("no_chat_template", good, {k: v for k, v in settings.items() if k != "chat_template"})
    tokenizer("template_syntax", good, dict(settings, chat_template="{% for m in messages %}{{ m.content }}"))
    tokenizer("template_raises", good, dict(settings, chat_template="{{ raise_exception('roles must alternate') }}"))
    tokenizer("template_endless", good,
              dict(settings, chat_template="{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"))
    tokenizer("config_not_json", good, "{")


models()
checkpoints()
tokenizers()
