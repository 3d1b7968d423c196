"""Golden files that hold a copy of Megatron's code: it comes from the installed release, and is never committed.

A line `MEGATRON("forward", "before")` stands for the statements of GPTModel.forward up to the decoder's output,
`MEGATRON("_postprocess", "hook")` for those of `_postprocess` before the hook, and "idle" for those between it and the
logits; `without=` names keywords that the copy does not pass on, `replace=` pairs of texts.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import textwrap
from functools import cache
from pathlib import Path

import pytest

from mcore_unpatch.codemods.seams.copies.upstream import calls_of, hook_at

_MARK = re.compile(r"^( +)(MEGATRON\(.*\))\n", re.M)


@cache
def _methods() -> dict[str, list[ast.stmt]]:
    try:
        spec = importlib.util.find_spec("megatron.core")
    except ImportError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs an installed megatron-core to compose the copy from")
    file = Path(next(iter(spec.submodule_search_locations))) / "models/gpt/gpt_model.py"
    classes = [node for node in ast.parse(file.read_bytes()).body if isinstance(node, ast.ClassDef)]
    model = next(node for node in classes if node.name == "GPTModel")
    return {node.name: node.body[1:] for node in model.body if isinstance(node, ast.FunctionDef)}


def composed(data: bytes) -> bytes:
    """A golden file with Megatron's statements in the place of the marks."""
    return _MARK.sub(lambda match: _statements(match[1], match[2]), data.decode()).encode()


def _statements(indent: str, mark: str) -> str:
    call = ast.parse(mark, mode="eval").body
    assert isinstance(call, ast.Call)
    method, part = (ast.literal_eval(one) for one in call.args)
    options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    body = _methods()[method]
    end = next((at + 1 for at, one in enumerate(body) if calls_of(one, "decoder")), 0)
    hook = hook_at(body)
    logits = next((at for at, one in enumerate(body) if ast.unparse(one).startswith("logits, _")), hook)
    chosen = {"before": body[:end], "hook": body[end:hook], "idle": body[hook:logits]}[part]
    without = _Without(set(options.get("without", ())))
    text = "\n".join(ast.unparse(without.visit(ast.parse(ast.unparse(one)))) for one in chosen)
    for old, new in options.get("replace", ()):
        assert old in text
        text = text.replace(old, new)
    return textwrap.indent(text, indent) + "\n"


class _Without(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Call(self, node: ast.Call) -> ast.Call:
        node.keywords = [one for one in node.keywords if one.arg not in self.names]
        return node
