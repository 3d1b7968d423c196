"""An encoder detach in the place of an MTP layer's `_get_embeddings`: hooks of PyTorch, or a field of the config.

`x.detach()` cuts at every depth, as hooks on the layer's norms do. `make_viewless_tensor(x, keep_graph=False)` cuts
views alone, which hidden states are before the first depth: so does `config.mtp_detach_heads` (megatron-core 0.19+).
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from mcore_unpatch.codemods import standing
from mcore_unpatch.codemods.changes import Change, Rewrite
from mcore_unpatch.codemods.seams.patch import Patch, Rewritten, find_patch, is_taken
from mcore_unpatch.codemods.source import Function
from mcore_unpatch.codemods.syntax import is_stored, is_value, leaf, parameters
from mcore_unpatch.megatron.versions import Version, show
from mcore_unpatch.repository.paths import is_test

HOOKS, METHOD = "detach_mtp_inputs", "_get_embeddings"
SINCE: Version = (0, 19)
_OF_THE_FIELD = (
    "`mtp_detach_heads` also detaches the output weight, and clips the MTP gradients in a group of their own",
)
_ROLLED = "Megatron's own method runs again: it shifts tokens and positions by one, which {name} did not"
# What Megatron's own method calls, and what detaches.
_CALLED = {"roll_tensor", "make_viewless_tensor", "detach", "requires_grad_", "get"}
_MORE = ast.BinOp | ast.AugAssign | ast.For | ast.While | ast.With | ast.Try | ast.Await | ast.Lambda | ast.Yield
_DETACHED, _VIEW = "detached", "view"


class Cut(NamedTuple):
    """What a function detaches of what it returns."""

    embeddings: bool
    hidden_states: str  # how, if at all


def without_the_patch(patch: Patch) -> Rewritten | str | None:
    """`layer._get_embeddings = detached` as `detach_mtp_inputs(layer)`, or as the field of the config."""
    if patch.target.attr != METHOD or patch.function is None or not _detaches(patch.function):
        return None
    if patch.finding.shape != "instance-attr":
        return "the patch is on the class, not on a layer"
    cut = read_cut(patch.function, _originals(patch))
    if isinstance(cut, str):
        return cut
    layer = patch.text(patch.target.value)
    made = _by_config(patch, layer) if cut.hidden_states == _VIEW else _by_hooks(patch, layer, cut)
    if isinstance(made, str):
        return made
    says = {node.id for node in ast.walk(patch.function) if isinstance(node, ast.Name)}
    rolls = "roll_tensor" in says or says & _originals(patch)
    notes = [*made.notes, *([] if rolls else [_ROLLED.format(name=f"`{patch.function.name}`")])]
    only_shown = _undone(patch)
    if below := patch.situation.staying.blocking(patch.source.path, standing.MTP):
        only_shown = standing.because(below, "it may treat its inputs differently from Megatron's layer")
    helpers: list[Change] = [] if only_shown else list(patch.leftovers())
    return replace(made, changes=[*made.changes, *helpers], notes=notes, only_shown=only_shown)


def _by_hooks(patch: Patch, layer: str, cut: Cut) -> Rewritten | str:
    if older := patch.situation.options.older(patch.source.path):
        return older
    if is_taken(HOOKS, patch.source):
        return f"the name `{HOOKS}` is taken"
    uncut = [name for name, is_cut in cut._asdict().items() if not is_cut]
    call = f"{HOOKS}({', '.join([layer, *(f'{name}=False' for name in uncut)])})"
    return Rewritten([Rewrite(patch.statement, call)], [HOOKS])


def _by_config(patch: Patch, layer: str) -> Rewritten | str:
    options = patch.situation.options
    oldest = (options.pinned(patch.source.path) or (options.target,))[0]
    if oldest < SINCE:  # which would take the field, and not read it
        since = f"`config.mtp_detach_heads` is read since megatron-core {show(SINCE)}"
        return f"{since}, and the project allows {show(oldest)}. Raise that first"
    return Rewritten([Rewrite(patch.statement, f"{layer}.config.mtp_detach_heads = True")], notes=_OF_THE_FIELD)


def _originals(patch: Patch) -> set[str]:
    """The names that hold Megatron's own method."""
    assigned = patch.source.every(ast.Assign)
    return {leaf(to) for one in assigned if leaf(one.value) == METHOD for to in one.targets}


def read_cut(function: Function, originals: Collection[str] = ()) -> Cut | str:
    """What a function detaches on every path, or why that cannot be told or is not all that it does."""
    for node in ast.walk(function):
        if isinstance(node, _MORE):
            return f"line {node.lineno} does more than detach"
        if isinstance(node, ast.Call) and leaf(node.func) not in {*_CALLED, *parameters(function), *originals}:
            return f"line {node.lineno} calls `{ast.unparse(node.func)}`, which Megatron's own method does not"
    kinds: dict[str, str] = {}
    found: set[tuple[str, str]] = set()
    for statement in function.body:
        again = any(is_stored(node, name) for node in ast.walk(statement) for name in kinds if kinds[name])
        if isinstance(statement, ast.If) and (again or (_detaches(statement) and not _only_returns(statement))):
            return f"what it detaches depends on the condition on line {statement.lineno}"
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            kinds[statement.targets[0].id] = _kind(statement.value, kinds)
        elif again:
            return f"line {statement.lineno} does more than detach"
        for node in ast.walk(statement):
            if isinstance(node, ast.Return):
                if not isinstance(node.value, ast.Tuple) or len(node.value.elts) < 2:
                    return f"line {node.lineno} does not return a tuple that ends in embeddings and hidden states"
                embeddings, hidden_states = (_kind(one, kinds) for one in node.value.elts[-2:])
                found.add((embeddings, hidden_states))
    if len(found) != 1:
        return "its return statements detach different values"
    embeddings, hidden_states = found.pop()
    if embeddings == _VIEW or (not embeddings and hidden_states != _DETACHED):
        return "it detaches in a way that neither hooks nor the config have"
    return Cut(bool(embeddings), hidden_states)


def _kind(value: ast.expr, kinds: dict[str, str]) -> str:
    """How an expression is detached."""
    if isinstance(value, ast.Name):
        return kinds.get(value.id, "")
    if not isinstance(value, ast.Call):
        return ""
    if isinstance(value.func, ast.Attribute) and value.func.attr == "detach":
        return _DETACHED
    if leaf(value.func) != "make_viewless_tensor":
        return ""
    given = [*value.args[:1], *(one.value for one in value.keywords if one.arg == "inp")]
    kept = any(one.arg == "keep_graph" and is_value(one.value, False) for one in value.keywords)
    return next((_kind(one, kinds) for one in given), "") or (_VIEW if kept else "")


def _only_returns(branch: ast.If) -> bool:
    return all(isinstance(one, ast.Return) for one in (*branch.body, *branch.orelse))


def _detaches(node: ast.AST | None) -> bool:
    for one in ast.walk(node) if node else ():
        if isinstance(one, ast.Attribute) and one.attr in {"detach", "detach_"}:
            return True
        if isinstance(one, ast.keyword) and one.arg == "keep_graph" and is_value(one.value, False):
            return True
    return False


def _undone(patch: Patch) -> str:
    """Where code that stays sets or deletes the method, which may put the original back: nothing is left to undo."""
    situation, name = patch.situation, patch.target.attr
    for one in patch.finding.related:
        if one.role == "restore":
            return f"line {one.line} undoes it"
    alike = [one for one in situation.staying.findings if one.target == patch.finding.target]
    found = (find_patch(replace(situation, finding=one)) for one in alike)
    ours = {
        (one.source.path, one.statement.lineno) for one in found if one and one.function and _detaches(one.function)
    }
    for source in situation.files.sources_saying(name):
        for node in source.every(ast.Attribute) if source is patch.source or not is_test(source.path) else ():
            if node.attr == name and not isinstance(node.ctx, ast.Load) and (source.path, node.lineno) not in ours:
                return f"{source.path}, line {node.lineno} may undo it"
    return ""
