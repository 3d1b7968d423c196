"""The object whose `forward` is wrapped: whether it is a module, which one, and where its `forward` is run directly.

What a function does with an object tells whether it is a module. No hook runs where a repository calls `forward`
without the module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple

from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.syntax import is_value, leaf
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron.layout import EXTERNAL_METHODS
from mcore_unpatch.repository.paths import is_test

# Called, or an argument; not of what a call returns, as in `super().forward(...)`.
_SAID = re.compile(rb"\.forward(?<!\(\)\.forward)\s*[(,)]")
_NEAR = 300  # bytes before it that its object is within
_REGISTER = "register_forward_"
_REGISTERS = {"register_forward_hook", "register_forward_pre_hook"}
# YaRN's embedding calls its own `forward` for its cache, MimoModel that of its submodules.
OF_MEGATRON, _ROTARY = ("RotaryEmbedding", "ModalitySubmodules"), "rotary_pos_emb"
# What is given a `forward` and does not run it.
_ASKS = {"wraps", "update_wrapper", "signature", "getfullargspec", "getsource"}
_ASKS |= {"id", "callable", "isinstance", "hasattr"}

FORWARD, MODEL = "forward", "a whole model"
# What modules have, and nothing else that has a `forward`.
_OF_MODULES = (EXTERNAL_METHODS["Module"] - EXTERNAL_METHODS["Function"] - {"type", "to", "float"}) | {"training"}
_OF_MODELS = {"decoder", "pre_process", "post_process", "share_embeddings_and_output_weights", "set_input_tensor"}
_WALKS = {"modules", "named_modules", "children", "named_children"}
_KINDS = ("Module", "Model")
_BY_NAME = {"getattr", "hasattr"}


def is_module(module: ast.expr, around: Function | None, finding: Finding) -> bool:
    """Whether the patched object is one: the scanner knows it, or the function around the patch treats it so."""
    return finding.confidence != "possible" or _is_module(module, around)


def name_of(module: ast.expr, around: Function | None) -> str:
    """What a module is called by the one that holds it; empty where it is only handed in."""
    node = behind(module, around)
    if isinstance(node, ast.Attribute):
        return node.attr
    return MODEL if isinstance(node, ast.Name) and _is_model(node, around) else ""


def may_be_the_same(first: Patch, other: Patch, name: Callable[[ast.expr, Function | None], str] = name_of) -> bool:
    """Whether two patches may be of one module: not if these have other names, or one holds the other."""
    names = name(first.target.value, first.around), name(other.target.value, other.around)
    if all(names):
        return names[0] == names[1]
    if first.source.path != other.source.path:
        return False
    mine, theirs = (ast.unparse(behind(patch.target.value, patch.around)) for patch in (first, other))
    holds = mine.startswith(f"{theirs}.") or theirs.startswith(f"{mine}.")
    return not (first.around is other.around and holds)


def _is_module(node: ast.expr, around: Function | None) -> bool:
    if around is None:
        return False
    held = behind(node, around)
    said = _attributes({ast.unparse(node), ast.unparse(held)}, around)
    if said & _OF_MODULES or _is_model(node, around) or _is_annotated(held, around) or _is_walked(held, around):
        return True
    return isinstance(held, ast.Attribute) and _is_module(held.value, around)  # what a module holds by a name


def _is_model(node: ast.expr, around: Function | None) -> bool:
    """It has what only Megatron's models have, or a provider returns it as one."""
    if around is None or not isinstance(node, ast.Name):
        return False
    returned = [node.value for node in ast.walk(around) if isinstance(node, ast.Return)]
    kind = ast.unparse(around.returns) if around.returns is not None else ""
    provides = kind.endswith("Model") and any(isinstance(value, ast.Name) and value.id == node.id for value in returned)
    return provides or bool(_attributes({node.id}, around) & _OF_MODELS)


def _attributes(texts: set[str], around: Function) -> set[str]:
    """The attributes of an object that a function reads, also with `getattr`."""
    attributes = set()
    for node in ast.walk(around):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and ast.unparse(node.value) in texts:
            attributes.add(node.attr)
        elif asked := _asked(node):
            if ast.unparse(asked[0]) in texts:
                attributes.add(asked[1])
    return attributes


def _asked(node: ast.AST) -> tuple[ast.expr, str] | None:
    """`getattr(x, "name", ...)` and `hasattr(x, "name")`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BY_NAME:
        match node.args:
            case [subject, ast.Constant(value=str(name)), *_]:
                return subject, name
    return None


def behind(node: ast.expr, around: Function | None) -> ast.expr:
    """The attribute that a local name was read from, or whose items it stands for."""
    for _ in range(4):  # a local of a local
        while isinstance(node, ast.Subscript) or (isinstance(node, ast.IfExp) and is_value(node.orelse, None)):
            node = node.value if isinstance(node, ast.Subscript) else node.body
        if asked := _asked(node):
            return ast.Attribute(asked[0], asked[1], ast.Load())
        values = list(_values(node.id, around)) if isinstance(node, ast.Name) and around is not None else []
        if len(values) != 1 or (isinstance(values[0], ast.Call) and not _asked(values[0])):
            break
        node = values[0]
    return node


def _values(name: str, around: Function) -> Iterator[ast.expr]:
    """What a local is set to, and what a loop takes it from."""
    for node in ast.walk(around):
        if isinstance(node, ast.Assign):
            if any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
                yield node.value
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            target, items = node.target, node.iter
            if isinstance(items, ast.Call) and getattr(items.func, "id", "") == "enumerate" and items.args:
                target = target.elts[-1] if isinstance(target, ast.Tuple) else target
                items = items.args[0]
            if isinstance(target, ast.Name) and target.id == name:
                yield items


def _is_walked(node: ast.expr, around: Function) -> bool:
    """`for name, x in model.named_modules()`."""
    for loop in ast.walk(around):
        if isinstance(loop, ast.For | ast.comprehension) and isinstance(loop.iter, ast.Call):
            func = loop.iter.func
            targets = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
            if isinstance(func, ast.Attribute) and func.attr in _WALKS and getattr(node, "id", "") in targets:
                return True
    return False


def _is_annotated(node: ast.expr, around: Function) -> bool:
    parameters = (*around.args.posonlyargs, *around.args.args, *around.args.kwonlyargs)
    given = [one.annotation for one in parameters if one.arg == getattr(node, "id", "") and one.annotation]
    return any(ast.unparse(node).strip("'\"").endswith(_KINDS) for node in given)


class DirectCall(NamedTuple):
    """`x.name.forward(...)`, or something that is handed on to be called; of a local there is only the name."""

    path: str
    line: int
    name: str
    is_local: bool


class Reached:
    """How else a repository reaches the `forward` of modules."""

    def __init__(self, files: Workbench) -> None:
        files.look_for(_SAID, _REGISTER)
        self._files, self._in, self.hooks = files, cache(partial(_direct_calls, files)), find_registered(files)

    def calls(self, names: set[str], path: str) -> Iterator[DirectCall]:
        """Where `forward` is called without the module, or handed on: in a file, and in others that say such a name."""
        for source in self._files.saying(_SAID):
            data = self._files.data(source) if source != path and not is_test(source) else b""
            before = b" ".join(data[max(0, at.start() - _NEAR) : at.start()] for at in _SAID.finditer(data))
            if source == path or any(name.encode() in before for name in names):
                yield from self._in(source)

    def every(self) -> Iterator[DirectCall]:
        """All such places but those of tests."""
        for path in self._files.saying(_SAID):
            yield from () if is_test(path) else self._in(path)


def _direct_calls(files: Workbench, path: str) -> list[DirectCall]:
    if (source := files.readable(path)) is None:
        return []
    return [
        DirectCall(path, node.lineno, _leaf(node.value), isinstance(node.value, ast.Name) and is_call)
        for node in source.every(ast.Attribute)
        if node.attr == FORWARD and isinstance(node.ctx, ast.Load) and not isinstance(node.value, ast.Call)
        if (is_call := _is_called(source, node)) or _is_handed_on(source, node)
    ]


def find_registered(files: Workbench) -> list[DirectCall]:
    """Where the repository registers hooks, by the names that modules have in others."""
    return [
        DirectCall(source.path, node.lineno, name, isinstance(node.func.value, ast.Name))
        for source in files.sources_saying(_REGISTER, tests=False)
        for node in source.every(ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _REGISTERS
        if (name := name_of(node.func.value, source.function_of(node)))
    ]


def called_by_megatron(module: ast.expr, around: Function | None, finding: Finding) -> bool:
    """Whether Megatron itself calls `forward` of such a module without the module."""
    owner = finding.target.split(".")[-2]
    return owner.endswith(OF_MEGATRON) or name_of(module, around) == _ROTARY


def why_not(module: ast.expr, around: Function | None, path: str, reached: Reached) -> str:
    """Why a hook on a module is not what a wrapper of its `forward` was.

    What is called directly has the same name, tests left out; in this file any local may be the module. One model may
    hold another by any name of a model.
    """
    name, names = name_of(module, around), {_leaf(module), name_of(module, around)} - {""}
    names |= {"model"} if name == MODEL else set()
    for call in reached.calls(names, path):
        held = name == MODEL and call.name.endswith("model")
        if held or call.name in names or (call.path == path and call.is_local):
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
