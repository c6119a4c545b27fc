#!/usr/bin/env python3
"""Remakes the cases beside this file: templates of our own, with the text that Python's Jinja gives.

Needs jinja2 (3.1 or later); no part of the product. The environment is set up as Hugging Face tokenizers set theirs:
an immutable sandbox, trim_blocks, lstrip_blocks, loop controls, tojson as json.dumps with ensure_ascii off,
raise_exception, strftime_now (2026-01-02 03:04:05) and the `generation` block.

usage: generate.py            writes *.json beside this file
       render() is also what other scripts compare against.
"""
import copy
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def make_environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: NOW.strftime(fmt)
    return env


ENV = make_environment()


def render(template, context):
    """A case's outcome: {"text": ...} or {"error": ..., "message": ...}."""
    try:
        return {"text": ENV.from_string(template).render(**copy.deepcopy(context))}
    except Exception as e:  # noqa: BLE001: whatever Python raises is the expected outcome
        return {"error": type(e).__name__, "message": str(e)[:200]}


CONTEXT = {
    "n": None, "t": True, "f": False, "i": 7, "neg": -3, "x": 2.5, "big": 12345678901234567890, "tiny": 1e-7,
    "s": "Hello World", "e": "", "u": "héllo 漢字 ß 😀", "ml": "one\n  two\n\nthree\n", "q": "it's \"q\" \\ \t",
    "html": "<b>&'\"", "l": [3, 1, 2], "ls": ["b", "A", "c"], "el": [], "m": [1, "a", None, True, 2.0, [1], {"k": 1}],
    "d": {"b": 2, "a": 1, "C": [1, {"z": None}]}, "ed": {}, "nest": {"items": [1, 2], "keys": "k", "x": {"y": {"z": 5}}},
    "msgs": [
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": "Hi", "name": "Ann", "n": 2},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1, "b": "x"}}}]},
        {"role": "tool", "content": [{"type": "text", "text": "42"}], "n": 1},
        {"role": "user", "content": "Bye", "n": 2},
    ],
}

EXPRESSIONS = pathlib.Path(__file__).with_name("expressions.txt")
TEMPLATES = pathlib.Path(__file__).with_name("statements.txt")


def main():
    here = pathlib.Path(__file__).parent
    out = []
    for number, line in enumerate(EXPRESSIONS.read_text().splitlines(), 1):
        if line and not line.startswith("##"):
            template = "{{ " + line + " }}"
            result = render(template, CONTEXT)
            if " at 0x" not in result.get("text", ""):  # an address differs from run to run
                out.append({"name": f"line_{number}", "template": template, **result})
    groups = [("expressions", out)]
    out = []
    for number, template in enumerate(TEMPLATES.read_text().split("\n====\n"), 1):
        out.append({"name": f"part_{number}", "template": template, **render(template, CONTEXT)})
    groups.append(("statements", out))
    for name, cases in groups:
        with open(here / f"{name}.json", "w") as f:
            rows = [json.dumps({**case, "context": "@context"}, ensure_ascii=False) for case in cases]
            f.write("[\n" + ",\n".join(rows) + "\n]\n")
    with open(here / "context", "w") as f:
        json.dump(CONTEXT, f, ensure_ascii=False, indent=1)
        f.write("\n")
    total = sum(len(cases) for _, cases in groups)
    errors = sum("error" in case for _, cases in groups for case in cases)
    print(f"{total} cases, {errors} of them errors")


if __name__ == "__main__":
    main()
