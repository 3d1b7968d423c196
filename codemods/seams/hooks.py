"""A wrapper of a module's `forward` that calls the original first, as a forward hook of that module.

One form alone: in one block the original is kept under a local name, the wrapper is defined, and it is assigned. What
it begins with is `out = original(...)` with all its arguments as they came, and it returns a value at its end.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mcore_unpatch.codemods.changes import Change, Header, Replace, Rewrite, above
from mcore_unpatch.codemods.codemod import Fix, Left, Note, Situation
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.patch import Patch, find_patch
from mcore_unpatch.codemods.syntax import (
    body_of,
    identifiers,
    is_name,
    is_stored,
    is_value,
    leaf,
    names_in,
    walk_without,
)
from mcore_unpatch.editing.source import Function, Source, first_line, last_line
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.library.syntax import dotted
from mcore_unpatch.megatron.layout import EXTERNAL_METHODS

FORWARD = "forward"
NOTES = (
    "a hook runs when the module is called, and not when something calls its `.forward(...)` directly",
    "it runs behind the hooks that the module has by then; the wrapper ran inside all of them",
    "no hook runs on a layer that a CUDA graph replays (`cuda_graph_impl`); on its parts it ran at the capture alone",
    "a forward hook that returns None leaves the output as it is; the wrapper's None was the output",
)
WHOLE_MODEL = "Megatron-FSDP up to 0.18 calls `forward` of the model that it wraps: without Float16Module no hook runs"
_FORM = "only a function that begins with the original, and is set for good on a known module beside it, is rewritten"
# YaRN's embedding calls its own `forward` for its cache, MimoModel that of its submodules.
_CALLED_BY_MEGATRON = ("RotaryEmbedding", "ModalitySubmodules", "rotary_pos_emb")
_DIRECT = re.compile(rb"\.forward\s*[(,)]")
_REGISTER = re.compile(rb"\.register_forward_(?:pre_)?hook\b")
_ASKS = ("getattr", "hasattr", "setattr", "delattr", "vars")
# What modules have, and nothing else that has a `forward`.
_OF_MODULES = (EXTERNAL_METHODS["Module"] - EXTERNAL_METHODS["Function"] - {"type", "to", "float"}) | {"training"}
_BLOCKS = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True)
class _Wrapper:
    """The statement that keeps the original, the function, and the one that puts it in the original's place."""

    patch: Patch
    keeps: ast.Assign
    function: ast.FunctionDef
    first: ast.Assign  # `out = original(...)`
    read: tuple[str, ...]  # the parameters that it reads by their names


def to_hook(situation: Situation) -> Iterator[Fix]:
    """The hook, or why the wrapper is not exactly one."""
    wrapper = _wrapper(situation)
    if wrapper is None:
        yield Left(_FORM)
    elif because := _in_the_way(situation, wrapper.patch):
        yield Left(because)
    else:
        yield from _changes(wrapper)


def _wrapper(situation: Situation) -> _Wrapper | None:
    """The parts of the form; None for every other."""
    patch = find_patch(situation)
    if patch is None or patch.finding.shape != "instance-attr" or patch.target.attr != FORWARD:
        return None
    put_back = any(one.role == "restore" for one in patch.finding.related)
    known = patch.finding.confidence != "possible" or _is_module(patch.target.value, patch.around)
    if not known or patch.finding.temporary or put_back:
        return None
    source, around, function, statement = patch.source, patch.around, patch.function, patch.statement
    if not isinstance(function, ast.FunctionDef) or around is None or not is_name(patch.value, function.name):
        return None
    suite = source.home[id(statement)]
    before = suite[: suite.index(statement)]
    keeps = [one for one in before if isinstance(one, ast.Assign) and _text(one.value) == _text(patch.target)]
    if len(keeps) != 1 or function not in before or not isinstance(keeps[0].targets[0], ast.Name):
        return None
    own = [keeps[0], function, statement]
    original = keeps[0].targets[0].id
    first = _first(function, original)
    plain = all(map(source.owns_lines, own)) and first is not None and source.owns_lines(first)
    if not plain or first is None or "#" in _lines(source, keeps[0]) or _is_looked_at(patch, own, original):
        return None
    read = _read(function, first)
    return None if read is None else _Wrapper(patch, keeps[0], function, first, read)


def _is_module(node: ast.expr, around: Function | None) -> bool:
    """Whether a function reads of an object, or of the one that holds it, what modules alone have."""
    if around is None:
        return False
    held = _held(node, around)
    texts = {_text(node), _text(held)}
    read = (one for one in ast.walk(around) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load))
    if any(one.attr in _OF_MODULES and _text(one.value) in texts for one in read):
        return True
    return isinstance(held, ast.Attribute) and _is_module(held.value, around)


def _first(function: ast.FunctionDef, original: str) -> ast.Assign | None:
    """`out = original(...)`, the first statement, if all arguments are handed on and a value is returned at the end."""
    spec, body = function.args, body_of(function)
    first = body[0]
    if not isinstance(first, ast.Assign) or not isinstance(first.value, ast.Call) or len(first.targets) != 1:
        return None
    given = [one.arg for one in spec.args]
    given += [f"*{spec.vararg.arg}"] if spec.vararg else []
    given += [f"**{spec.kwarg.arg}"] if spec.kwarg else []
    handed_on = _text(first.value) == f"{original}({', '.join(given)})"
    odd = spec.defaults or spec.kwonlyargs or spec.posonlyargs or not isinstance(first.targets[0], ast.Name | ast.Tuple)
    wraps = [one for one in function.decorator_list if isinstance(one, ast.Call) and leaf(one.func) == "wraps"]
    inner = [node for one in body for node in ast.walk(one)]
    special = any(isinstance(one, ast.Yield | ast.YieldFrom) for one in inner)
    if not handed_on or odd or special or len(wraps) != len(function.decorator_list) or not _returns(body, inner):
        return None
    return first


def _returns(body: list[ast.stmt], inner: list[ast.AST]) -> bool:
    """Whether a function leaves with a value wherever it does: a hook that returns None would keep the output."""
    stored = [one for one in inner if isinstance(one, ast.Assign) and _may_be_none(one.value)]
    names = {name for one in stored for target in one.targets for name in names_in(target)}
    values = [one.value for one in inner if isinstance(one, ast.Return)]
    return _leaves(body) and not any(_may_be_none(value) or getattr(value, "id", "") in names for value in values)


def _may_be_none(value: ast.expr | None) -> bool:
    parts = [value] if value is None or isinstance(value, ast.Call) else list(ast.walk(value))
    return any(part is None or is_value(part, None) for part in parts)


def _leaves(body: list[ast.stmt]) -> bool:
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _leaves(last.body) and _leaves(last.orelse)
    return isinstance(last, ast.Return | ast.Raise)


def _read(function: ast.FunctionDef, first: ast.Assign) -> tuple[str, ...] | None:
    """The parameters with names that come after the original; None where `*args` or `**kwargs` do."""
    spec = function.args
    used = {name for one in body_of(function) if one is not first for name in names_in(one)}
    bound = {node.id for node in ast.walk(first.targets[0]) if isinstance(node, ast.Name)}
    rest = {one.arg for one in (spec.vararg, spec.kwarg) if one is not None}
    new = {"_module", "_args", "args", "kwargs", "outputs"} - rest
    if rest & used or new & identifiers(function) or bound & {*rest, *(one.arg for one in spec.args)}:
        return None
    return tuple(one.arg for one in spec.args if one.arg in used)


def _is_looked_at(patch: Patch, own: list[ast.stmt], original: str) -> bool:
    """Whether something else sees the module's `forward`, the original or the wrapper, or any may be another there."""
    source, around = patch.source, patch.around
    assert around is not None
    beside = [node for node in ast.walk(around) if isinstance(node, ast.Name)]
    wrapper = patch.function.name if patch.function else ""
    roots = names_in(patch.target)
    given = {one.arg for one in ast.walk(around.args) if isinstance(one, ast.arg)}
    if any(sum(is_stored(node, root) for node in beside) > (root not in given) for root in roots):
        return True
    wraps = patch.function.decorator_list if patch.function else []
    mentions = [node for node in beside if node.id == original]
    if len(mentions) != 2 + len(wraps) or sum(node.id == wrapper for node in beside) != 1:
        return True
    if any(isinstance(node, _BLOCKS) for node in source.above(patch.statement)):
        return True
    if any({original, wrapper} & {*node.names} for node in source.every(ast.Global, ast.Nonlocal)):  # type: ignore[attr-defined]
        return True
    target = _text(patch.target)
    for node in walk_without(source.tree, own):
        if isinstance(node, ast.Attribute) and (_text(node) == target and source.function_of(node) is around):
            return True
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Del) and node.attr == FORWARD:
            return True
        asked = node.args if isinstance(node, ast.Call) and leaf(node.func) in _ASKS else ()
        if any(getattr(one, "value", "") == FORWARD for one in asked):
            return True
    return any(leaf(node) in {"__dict__", "vars"} for node in ast.walk(around) if isinstance(node, ast.expr))


def _in_the_way(situation: Situation, patch: Patch) -> str:
    """Why a hook does not run where the wrapper did, or in another order than other wrappers."""
    finding, name = situation.finding, _name_of(patch.target.value, patch.around)
    if finding.target.split(".")[-2].endswith(_CALLED_BY_MEGATRON) or name in _CALLED_BY_MEGATRON:
        return "Megatron itself calls `forward` of such a module directly, where hooks do not run"
    for other in situation.staying.findings:
        if other is not finding and not other.in_test and _may_be_the_same(other, finding):
            theirs = _wrapper(replace(situation, finding=other))
            if theirs is None or other.path not in situation.files.editable:
                return f"{other.path}:{other.line} wraps the same method, and their order would change"
    held = {name, leaf(patch.target.value)} - {""}
    is_model = finding.target.split(".")[-2].endswith("Model")
    for word, what in (
        (_DIRECT, "calls `forward` directly, where hooks do not run"),
        (_REGISTER, "registers a hook on such a module too, which ran outside of the wrapper"),
    ):
        for source in situation.files.sources_saying(word, tests=False):
            for node in source.every(ast.Attribute):
                reached = node.attr == FORWARD if word is _DIRECT else node.attr.startswith("register_forward_")
                if reached and isinstance(node.ctx, ast.Load) and _is_handed_on(source, node):
                    theirs_name = _name_of(node.value, source.function_of(node))
                    same = theirs_name in held or (is_model and theirs_name.endswith("model"))
                    if same or (source is patch.source and word is _DIRECT and isinstance(node.value, ast.Name)):
                        return f"{source.path}:{node.lineno} {what}"
    return ""


def _may_be_the_same(other: Finding, finding: Finding) -> bool:
    if not other.target.endswith(f".{FORWARD}"):
        return False
    if "possible" in (other.confidence, finding.confidence):  # their classes are guessed
        return other.path == finding.path
    return other.target == finding.target


def _is_handed_on(source: Source, node: ast.Attribute) -> bool:
    """Whether an attribute is called, or an argument of a call."""
    upper = source.parents[node]
    upper = source.parents[upper] if isinstance(upper, ast.keyword) else upper
    return isinstance(upper, ast.Call) and not isinstance(node.value, ast.Call)


def _name_of(node: ast.expr, around: Function | None) -> str:
    """What a module is called by the one that holds it, also where a local stands for it."""
    held = _held(node, around)
    return leaf(held) or dotted(held)


def _held(node: ast.expr, around: Function | None) -> ast.expr:
    """What a local was read from."""
    for _ in range(4):
        while isinstance(node, ast.Subscript):
            node = node.value
        name = node.id if isinstance(node, ast.Name) else ""
        assigned = [one for one in ast.walk(around) if isinstance(one, ast.Assign)] if name and around else []
        values = [one.value for one in assigned if is_name(one.targets[0], name)]
        if len(values) != 1 or not isinstance(values[0], ast.Attribute | ast.Subscript | ast.Name):
            break
        node = values[0]
    return node


def _changes(wrapper: _Wrapper) -> Iterator[Fix]:
    """The function as a hook, registered where it was assigned; what kept the original goes."""
    patch, function, first, source = wrapper.patch, wrapper.function, wrapper.first, wrapper.patch.source
    target, spec, body = first.targets[0], function.args, body_of(function)
    changes: list[Change] = []
    if isinstance(target, ast.Name) and len(body) > 1 and "#" not in _lines(source, first):
        output, begin = target.id, body[1]
        changes += remove(source, [first])
    else:
        output, begin = "outputs", first
        changes.append(Replace(first.value, output))
    args, kwargs = (one.arg if one else word for one, word in ((spec.vararg, "args"), (spec.kwarg, "kwargs")))
    reads = []
    for index, one in enumerate(spec.args):
        if one.arg in wrapper.read:
            has = f"len({args}) > {index}" if index else args
            reads.append(f'{one.arg} = {args}[{index}] if {has} else {kwargs}["{one.arg}"]')
    if reads:
        changes.append(above(source, begin, "\n".join(reads)))
    given = ["_module", *([args, kwargs] if reads else ["_args"]), output]
    changes.append(Header(function, ", ".join(given), undecorated=bool(function.decorator_list)))
    options = ", with_kwargs=True" if reads else ""
    call = f"{patch.text(patch.target.value)}.register_forward_hook({function.name}{options})"
    yield from changes
    keeps = wrapper.keeps
    said = [source.line(number).strip() for number in range(source.first_with_comments(keeps), first_line(keeps))]
    yield from remove(source, [keeps], with_comments=True)
    yield Rewrite(patch.statement, "\n".join([*said, call]), tell_checkers=False)
    yield from map(Note, NOTES)
    if patch.finding.target.split(".")[-2].endswith("Model"):
        yield Note(WHOLE_MODEL)


def _lines(source: Source, statement: ast.stmt) -> str:
    return "\n".join(map(source.line, range(first_line(statement), last_line(statement) + 1)))


def _text(node: ast.AST) -> str:
    return ast.unparse(node)
