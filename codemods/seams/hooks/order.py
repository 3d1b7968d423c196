"""A wrapper around `forward` of one module that calls the original once: PyTorch's forward hook or pre-hook.

Exactly that: `original = module.forward`, a function that begins or ends with `original(*args, **kwargs)`, and the
assignment. Then the hook runs at the same moment with the same values; what puts the original back removes it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from mcore_unpatch.codemods.changes import Rewrite, above
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.hooks.form import Form, Wrapper
from mcore_unpatch.codemods.seams.hooks.module import is_module, may_be_the_same, name_of
from mcore_unpatch.codemods.seams.hooks.site import Site, find_site
from mcore_unpatch.codemods.seams.patch import Patch, Rewritten, find_patch
from mcore_unpatch.codemods.seams.said import Said
from mcore_unpatch.codemods.seams.undo import FORWARD, Undoing, plan_undoing
from mcore_unpatch.codemods.source import Function, last_line
from mcore_unpatch.codemods.syntax import is_one_of
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.findings import Finding
from mcore_unpatch.paths import is_test

if TYPE_CHECKING:
    from mcore_unpatch.codemods.answering import Situation

_LOOPS = ast.For | ast.AsyncFor | ast.While
_LEAVES = ast.Return | ast.Raise | ast.Continue | ast.Break


class DirectCall(NamedTuple):
    """`x.name.forward(...)`, where no hook runs; of a local there is only the name."""

    path: str
    line: int
    name: str
    is_local: bool


@dataclass(frozen=True)
class _Alone:
    """One wrapper, whatever others there are."""

    patch: Patch
    site: Site
    around: Function
    form: Form

    @property
    def line(self) -> int:
        """Where the patch stands."""
        return self.patch.statement.lineno


def to_hook(patch: Patch) -> Rewritten | str:
    """The rewrite, or why it is not exactly a hook."""
    wrappers: _Wrappers = patch.situation.once(_Wrappers)
    return wrappers.to_hook(patch)


class _Wrappers:
    """The wrappers of a repository: two around one module can become hooks if their order does not matter."""

    def __init__(self, files: Workbench) -> None:
        self.files, self.calls = files, find_direct_calls(files)
        self._known: dict[_Key, tuple[Patch | None, _Alone | str]] = {}

    def to_hook(self, patch: Patch) -> Rewritten | str:
        """The hook, for a wrapper and all others that may be around the same module."""
        situation, (_, mine) = patch.situation, self._read(patch.situation)
        if isinstance(mine, str):
            return mine
        seen, waiting = {_key(situation.finding)}, [situation]
        while waiting:
            one = waiting.pop()
            for other in self._around_the_same(one):
                where = f"{other.finding.path}:{other.finding.line} wraps the same method"
                here, there = self._read(one)[1], self._read(other)[1]
                if isinstance(here, str) or isinstance(there, str) or not here.form.commutes_with(there.form):
                    return f"{where}, and which of them runs first would change"
                if _key(other.finding) not in seen:
                    seen.add(_key(other.finding))
                    waiting.append(other)
                    if other.finding.path not in self.files.editable:
                        return f"{where} and is not migrated with it"
                    if isinstance(because := self._undoing(other, there), str):
                        return f"{where} and stays: {because}"
        undoing = self._undoing(situation, mine)
        return undoing if isinstance(undoing, str) else _installed(mine, undoing)

    def _undoing(self, situation: Situation, alone: _Alone) -> Undoing | str:
        """What becomes of the original that was kept; other branches of the function may have kept it too."""
        others = [one for one in _others(situation) if one.finding.path == situation.finding.path]
        read = (self._read(one)[1] for one in others)
        branches = [one for one in read if isinstance(one, _Alone) and _excludes(alone, one)]
        gone = [alone.site.function, *(node for one in branches for node in (one.site.function, one.patch.statement))]
        found = plan_undoing(alone.patch, gone, [])
        if isinstance(found, Undoing) and any(one.line > alone.line for one in branches):
            return replace(found, removed=())  # the last of them takes what all have kept
        return found

    def _read(self, situation: Situation) -> tuple[Patch | None, _Alone | str]:
        """A patch, and the hook that it is or why it is none."""
        key = _key(situation.finding)
        if key not in self._known:
            patch = find_patch(situation)
            self._known[key] = patch, _alone(patch, self.calls) if patch is not None else "it is not a plain assignment"
        return self._known[key]

    def _around_the_same(self, situation: Situation) -> Iterator[Situation]:
        """Patches that may be of the same module: inside out, one would see what the other has changed already."""
        mine, (patch, here) = situation.finding, self._read(situation)
        for one in _others(situation):
            theirs = one.finding
            if "possible" not in (mine.confidence, theirs.confidence) and theirs.target != mine.target:
                continue
            other, there = self._read(one)
            if "possible" in (mine.confidence, theirs.confidence):
                alike = may_be_the_same(patch, other) if patch and other else theirs.path == mine.path
            else:
                alike = True
            if alike and not (isinstance(here, _Alone) and isinstance(there, _Alone) and _excludes(here, there)):
                yield one


_Key = tuple[str, int]


def _key(finding: Finding) -> _Key:
    return finding.path, finding.line


def _others(situation: Situation) -> Iterator[Situation]:
    """The other patches of a `forward` that may be wrappers."""
    for one in situation.staying.findings:
        wraps = one.shape in {"instance-attr", "setattr"} and one.target.endswith(f".{FORWARD}") and not one.in_test
        if wraps and _key(one) != _key(situation.finding):
            yield replace(situation, finding=one)


def _alone(patch: Patch, calls: Iterable[DirectCall]) -> _Alone | str:
    around = patch.around
    if patch.target.attr != FORWARD or patch.finding.shape != "instance-attr":
        return "a hook runs around `forward` of one module, and this patch is of another kind"
    if not is_module(patch):
        return f"`{patch.text(patch.target.value)}` cannot be shown to be a module"
    if around is None:
        return "the patch is outside of a function"
    site = find_site(patch, around)
    if isinstance(site, str):
        return site
    function = site.function
    if not all(map(patch.source.owns_lines, (patch.statement, *function.body))):
        return f"line {patch.statement.lineno} or `{function.name}` holds several statements on a line"
    if direct := next(_directly(patch, calls), None):
        return f"{direct.path}:{direct.line} calls `forward` directly, where hooks do not run"
    wrapper = Wrapper(patch.source, function, site.calling)
    if not wrapper.original:
        return "the original is not kept in one name"
    if any(isinstance(one, _LOOPS) for one in _above(patch.statement, patch)):
        if not (wrapper.is_bound or site.own) or any(one.role == "restore" for one in patch.finding.related):
            return f"`{function.name}` is made in a loop, and calls the original of the last turn or is undone later"
    form = wrapper.read()
    return form if isinstance(form, str) else _Alone(patch, site, around, form)


def _above(node: ast.AST, patch: Patch) -> Iterator[ast.AST]:
    while node is not patch.around:
        node = patch.source.parents[node]
        yield node


def _excludes(one: _Alone, other: _Alone) -> bool:
    """Whether only one of two patches in a function can run: other branches of an `if`, or one that leaves."""
    if one.around is not other.around or one.patch.statement is other.patch.statement:
        return False
    source = one.patch.source
    first, second = sorted((one.patch.statement, other.patch.statement), key=lambda node: node.lineno)
    beyond = [second, *_above(second, one.patch)]
    node: ast.AST = first
    while not is_one_of(source.parents[node], beyond):
        suite = source.home.get(id(node), [])
        if suite and isinstance(suite[-1], _LEAVES):
            return True
        node = source.parents[node]
    branch = source.parents[node]
    if isinstance(branch, ast.If):
        return is_one_of(node, branch.body) and any(is_one_of(one, branch.orelse) for one in beyond)
    return False


def find_direct_calls(files: Workbench) -> list[DirectCall]:
    """Where the repository calls `forward` without the module."""
    return [
        DirectCall(source.path, node.lineno, _leaf(node.func.value), isinstance(node.func.value, ast.Name))
        for source in files.sources_saying(".forward(")
        for node in source.every(ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr == FORWARD
        if not isinstance(node.func.value, ast.Call)
    ]


def _directly(patch: Patch, calls: Iterable[DirectCall]) -> Iterator[DirectCall]:
    """Those of what has the same name, tests left out, and in this file those of locals, which may be the module."""
    names = {_leaf(patch.target.value), name_of(patch)}
    for one in calls:
        here = one.path == patch.source.path
        if (here and one.is_local) or (one.name in names and (here or not is_test(one.path))):
            yield one


def _leaf(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _installed(alone: _Alone, undoing: Undoing) -> Rewritten:
    patch, form = alone.patch, alone.form
    call = f"{patch.text(patch.target.value)}.{form.registered(alone.site.hook)}"
    said = Said(patch.source)
    said.inside(patch.statement)
    for one in undoing.removed:
        said.between(patch.source.first_with_comments(one), last_line(one))
    text = "\n".join([*said.lines(), f"{undoing.handle} = {call}" if undoing.handle else call])
    removed: list[ast.stmt] = list(undoing.removed)
    changes = [*form.changes, *alone.site.changes, *undoing.changes]
    if undoing.lift is None:
        changes.append(Rewrite(patch.statement, text, tell_checkers=False))
    else:
        changes.append(above(patch.source, undoing.lift, text))
        removed.append(patch.statement)
    return Rewritten([*changes, *remove(patch.source, removed, with_comments=True)], notes=form.notes)
