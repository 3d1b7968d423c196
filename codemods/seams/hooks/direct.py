"""Where a repository runs `forward` of a module without calling the module: no hook runs there."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from mcore_unpatch.codemods.seams.hooks.module import name_of
from mcore_unpatch.codemods.seams.hooks.site import FORWARD
from mcore_unpatch.codemods.syntax import leaf
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.repository.paths import is_test

# Called, or an argument; not of what a call returns, as in `super().forward(...)`.
_SAID = re.compile(rb"(?<!\(\))\.forward\s*[(,)]")
_REGISTERS = {"register_forward_hook", "register_forward_pre_hook"}
# YaRN's embedding calls its own `forward` for its cache, MimoModel that of its submodules.
_OF_MEGATRON, _ROTARY = ("RotaryEmbedding", "ModalitySubmodules"), "rotary_pos_emb"
# What is given a `forward` and does not run it.
_ASKS = {
    "wraps",
    "update_wrapper",
    "signature",
    "getfullargspec",
    "getsource",
    "id",
    "callable",
    "isinstance",
    "hasattr",
}


class DirectCall(NamedTuple):
    """`x.name.forward(...)`, or something that is handed on to be called; of a local there is only the name."""

    path: str
    line: int
    name: str
    is_local: bool


class Reached:
    """How else a repository reaches the `forward` of modules."""

    def __init__(self, files: Workbench) -> None:
        self.calls, self.hooks = find_direct_calls(files), find_registered(files)


def find_direct_calls(files: Workbench) -> list[DirectCall]:
    """Where the repository calls `forward` without the module, or hands it on."""
    return [
        DirectCall(source.path, node.lineno, _leaf(node.value), isinstance(node.value, ast.Name) and is_call)
        for source in files.sources_saying(_SAID)
        for node in source.every(ast.Attribute)
        if node.attr == FORWARD and isinstance(node.ctx, ast.Load) and not isinstance(node.value, ast.Call)
        if (is_call := _is_called(source, node)) or _is_handed_on(source, node)
    ]


def find_registered(files: Workbench) -> list[DirectCall]:
    """Where the repository registers hooks, by the names that modules have in others."""
    return [
        DirectCall(source.path, node.lineno, name, isinstance(node.func.value, ast.Name))
        for source in files.sources_saying("register_forward_", tests=False)
        for node in source.every(ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _REGISTERS
        if (name := name_of(node.func.value, source.function_of(node)))
    ]


def called_by_megatron(module: ast.expr, around: Function | None, finding: Finding) -> bool:
    """Whether Megatron itself calls `forward` of such a module without the module."""
    owner = finding.target.split(".")[-2]
    return owner.endswith(_OF_MEGATRON) or name_of(module, around) == _ROTARY


def why_not(module: ast.expr, around: Function | None, path: str, reached: Reached) -> str:
    """Why a hook on a module is not what a wrapper of its `forward` was.

    What is called directly has the same name, tests left out; in this file any local may be the module.
    """
    name, names = name_of(module, around), {_leaf(module), name_of(module, around)} - {""}
    for call in reached.calls:
        here = call.path == path
        if (here and call.is_local) or (call.name in names and (here or not is_test(call.path))):
            return f"{call.path}:{call.line} calls `forward` directly, where hooks do not run"
    for call in reached.hooks:
        if name and call.name == name:
            return f"{call.path}:{call.line} registers a hook on such a module too, which ran outside of the wrapper"
    return ""


def _is_called(source: Source, node: ast.Attribute) -> bool:
    above = source.parents[node]
    return isinstance(above, ast.Call) and above.func is node


def _is_handed_on(source: Source, node: ast.Attribute) -> bool:
    """As an argument, as in `checkpoint(layer.forward, ...)`; what makes a patch of it is seen as that patch."""
    above = source.parents[node]
    above = source.parents[above] if isinstance(above, ast.keyword) else above
    if not isinstance(above, ast.Call) or leaf(above.func) in _ASKS:
        return False
    statement = next((node for node in source.above(above) if isinstance(node, ast.stmt)), None)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return not any(isinstance(target, ast.Attribute) and target.attr == FORWARD for target in targets)


def _leaf(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return leaf(node)
