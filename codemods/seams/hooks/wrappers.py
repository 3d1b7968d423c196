"""What becomes of a wrapper around `forward` of one module, with the others that may be around the same module.

It begins or ends with the original, and hands on what it is given. Then the hook runs at the same moment with the same
values.
"""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from mcore_unpatch.codemods.changes import Rewrite
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.hooks.form import WHOLE_MODEL, Calling, Hooked, Wrapper
from mcore_unpatch.codemods.seams.hooks.module import (
    FORWARD,
    MODEL,
    Reached,
    called_by_megatron,
    is_module,
    may_be_the_same,
    name_of,
    why_not,
)
from mcore_unpatch.codemods.seams.patch import Patch, Rewritten, bound_to, find_patch
from mcore_unpatch.codemods.syntax import is_name, is_one_of, is_stored, names_in, parameters, walk_without
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source, first_line, last_line
from mcore_unpatch.findings.finding import Finding

if TYPE_CHECKING:
    from mcore_unpatch.codemods.answering import Situation


NOT_PLAIN, OTHER_CLASS = "it is not a plain assignment", "this changes the class of the module"
_OF_ALL = {"class-attr", "class-of-instance", "string-target"}
_PRAGMAS = ("# type:", "# noqa", "# pylint", "# pragma", "# fmt", "# pyright", "# mypy")
_LOOPS = ast.For | ast.AsyncFor | ast.While
_LEAVES = ast.Return | ast.Raise | ast.Continue | ast.Break
_Key = tuple[str, int]


@dataclass(frozen=True)
class _Wrapped(Hooked):
    """A function in the place of `forward`."""

    patch: Patch
    site: WrapperSite


def to_hook(situation: Situation) -> Rewritten | str:
    """The rewrite, or why it is not exactly a hook."""
    wrappers: _Wrappers = situation.once(_Wrappers)
    return wrappers.to_hook(situation)


class _Wrappers:
    """The wrappers of a repository: two around one module can become hooks if their order does not matter."""

    def __init__(self, files: Workbench) -> None:
        self.files, self._name = files, cache(name_of)
        self._known: dict[_Key, tuple[Patch | None, _Wrapped | str]] = {}

    def to_hook(self, situation: Situation) -> Rewritten | str:
        """The hook, for a wrapper and all others that may be around the same module."""
        _, mine = self._read(situation)
        if isinstance(mine, str):
            return mine
        if of_class := next(_of_its_class(situation), None):
            return f"{of_class.path}:{of_class.line} replaces the method of the class, and the hook would wrap that"
        seen, waiting = {_key(situation.finding)}, [situation]
        while waiting:
            one = waiting.pop()
            for other in self._around_the_same(one):
                where = f"{other.finding.path}:{other.finding.line} wraps the same method"
                here, there = self._read(one)[1], self._read(other)[1]
                if isinstance(here, str) or isinstance(there, str) or not here.form.commutes_with(there.form):
                    return f"{where}, and their order would change"
                if _key(other.finding) not in seen:
                    seen.add(_key(other.finding))
                    waiting.append(other)
                    if other.finding.path not in self.files.editable:
                        return f"{where} and is not part of this migration"
                    if because := looked_at(there.patch, there.site, self._branches(other, there)):
                        return f"{where} and stays: {because}"
        return self._installed(situation, mine)

    def _installed(self, situation: Situation, mine: _Wrapped) -> Rewritten | str:
        """The function as a hook, registered where it was assigned; what kept the original goes."""
        patch, form, site = mine.patch, mine.form, mine.site
        branches = self._branches(situation, mine)
        if because := looked_at(patch, site, branches):
            return because
        # The last of several branches takes what all have kept.
        kept_for_others = any(isinstance(branch, ast.stmt) and branch.lineno > mine.line for branch in branches)
        goes = [] if site.keeps is None or kept_for_others or still_kept(patch, site, branches) else [site.keeps]
        said = CommentCollector(patch.source)
        said.inside(patch.statement)
        for assignment in goes:
            said.between(patch.source.first_with_comments(assignment), last_line(assignment))
        call = f"{patch.text(patch.target.value)}.{form.registered(site.function.name)}"
        text = "\n".join([*said.lines(), call])
        changes = [*form.changes, Rewrite(patch.statement, text, tell_checkers=False)]
        of_model = name_of(patch.target.value, mine.around) == MODEL or _module(patch.finding).endswith("Model")
        notes = (*form.notes, WHOLE_MODEL) if of_model else form.notes
        return Rewritten([*changes, *remove(patch.source, goes, with_comments=True)], notes=notes)

    def _branches(self, situation: Situation, mine: _Wrapped) -> list[ast.AST]:
        """The wrappers of other branches of the function, which may have kept the original too."""
        others = [other for other in _others(situation) if other.finding.path == situation.finding.path]
        read = [there for other in others if not isinstance(there := self._read(other)[1], str)]
        return [node for one in read if _excludes(mine, one) for node in (one.site.function, one.patch.statement)]

    def _read(self, situation: Situation) -> tuple[Patch | None, _Wrapped | str]:
        """A patch, and the hook that it is or why it is none."""
        key = _key(situation.finding)
        if key not in self._known:
            patch = find_patch(situation)
            why = OTHER_CLASS if situation.finding.target.endswith(".__class__") else NOT_PLAIN
            self._known[key] = patch, _wrapped(patch, lambda: self.files.once(Reached)) if patch is not None else why
        return self._known[key]

    def _around_the_same(self, situation: Situation) -> Iterator[Situation]:
        """Patches that may be of the same module: inside out, one would see what the other has changed already."""
        mine, (patch, here) = situation.finding, self._read(situation)
        for one in _others(situation):
            theirs = one.finding
            if "possible" not in (mine.confidence, theirs.confidence) and _module(theirs) != _module(mine):
                continue
            other, there = self._read(one)
            if "possible" in (mine.confidence, theirs.confidence):
                alike = may_be_the_same(patch, other, self._name) if patch and other else theirs.path == mine.path
            else:
                alike = True
            if alike and not (isinstance(here, Hooked) and isinstance(there, Hooked) and _excludes(here, there)):
                yield one


def _key(finding: Finding) -> _Key:
    return finding.path, finding.line


def _module(finding: Finding) -> str:
    return finding.target.rpartition(".")[0]


def _of_its_class(situation: Situation) -> Iterator[Finding]:
    """Patches of the class: the wrapper kept what the class had by then."""
    for one in situation.staying.findings:
        if one.target == f"{_module(situation.finding)}.{FORWARD}" and one.shape in _OF_ALL and not one.in_test:
            yield one


def _others(situation: Situation) -> Iterator[Situation]:
    """The other patches of a `forward` that may be wrappers, or of the class that has it."""
    for one in situation.staying.findings:
        wraps = one.shape in {"instance-attr", "setattr"} and one.target.endswith(f".{FORWARD}") and not one.in_test
        if wraps and _key(one) != _key(situation.finding):
            yield replace(situation, finding=one)


def _wrapped(patch: Patch, reached: Callable[[], Reached]) -> _Wrapped | str:
    around = patch.around
    if patch.target.attr != FORWARD or patch.finding.shape != "instance-attr":
        if patch.finding.target.endswith(".__class__"):
            return OTHER_CLASS
        changed = ".".join(patch.finding.target.split(".")[-2:])
        return f"only a patched `forward` of one module can become a forward hook, and this changes `{changed}`"
    if not is_module(patch.target.value, around, patch.finding):
        return f"`{patch.text(patch.target.value)}` is not known to be a module"
    if around is None:
        return "the patch is at the top level of the file"
    site = find_site(patch, around)
    if isinstance(site, str):
        return site
    function = site.function
    if not all(map(patch.source.owns_lines, (patch.statement, *function.body))):
        return f"line {patch.statement.lineno} or `{function.name}` holds several statements on a line"
    if because := why_not(patch.target.value, around, patch.source.path, reached()):
        return because
    if called_by_megatron(patch.target.value, around, patch.finding):
        return "Megatron itself calls `forward` of such a module directly, where hooks do not run"
    wrapper = Wrapper(patch.source, function, site.calling)
    if not wrapper.original:
        return "the original is not saved under one name"
    if any(isinstance(node, _LOOPS) for node in _above(patch.source, patch.statement, around)):
        if not wrapper.is_bound:
            return f"`{function.name}` is defined in a loop, and calls the last original"
    form = wrapper.read()
    return form if isinstance(form, str) else _Wrapped(patch.source, patch.statement, around, form, patch, site)


class CommentCollector:
    """Comments by line, those for tools left out."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._comments: dict[int, list[str]] = {}

    def lines(self) -> list[str]:
        """The comments in order."""
        return [comment for _, comments in sorted(self._comments.items()) for comment in comments]

    def between(self, first: int, last: int) -> None:
        """The comments on some lines."""
        text = textwrap.dedent(self.source.text_of(self.source.line_span(first, last)))
        for token in tokenize.generate_tokens(io.StringIO(text, newline=None).readline):
            if token.type == tokenize.COMMENT and not token.string.startswith(_PRAGMAS):
                self._comments.setdefault(first + token.start[0] - 1, []).append(token.string)

    def inside(self, statement: ast.stmt) -> None:
        """The comments within a statement of several lines; the one behind it stays where it is."""
        if last_line(statement) > first_line(statement):
            self.between(first_line(statement), last_line(statement))
            self._comments.pop(last_line(statement), None)


def _above(source: Source, node: ast.AST, around: Function | None) -> Iterator[ast.AST]:
    for one in source.above(node):
        yield one
        if one is around:
            return


def _excludes(hooked: Hooked, other: Hooked) -> bool:
    """Whether only one of two patches in a function can run: other branches of an `if`, or one that leaves."""
    if hooked.around is None or hooked.around is not other.around or hooked.statement is other.statement:
        return False
    source = hooked.source
    first, second = sorted((hooked.statement, other.statement), key=lambda node: node.lineno)
    beyond = [second, *_above(source, second, hooked.around)]
    node: ast.AST = first
    while not is_one_of(source.parents[node], beyond):
        suite = source.home.get(id(node), [])
        if suite and isinstance(suite[-1], _LEAVES):
            return True
        node = source.parents[node]
    branch = source.parents[node]
    if isinstance(branch, ast.If):
        return is_one_of(node, branch.body) and any(is_one_of(node, branch.orelse) for node in beyond)
    return False


@dataclass(frozen=True)
class WrapperSite:
    """A wrapper beside its assignment, how it calls the original, and the statement that keeps that."""

    function: ast.FunctionDef
    calling: Calling
    keeps: ast.Assign | None


def find_site(patch: Patch, around: Function) -> WrapperSite | str:
    """The wrapper of a patch, or why it is not found."""
    function = patch.function
    if not isinstance(function, ast.FunctionDef) or not is_one_of(function, ast.walk(around)):
        return "the wrapper is not defined next to the assignment"
    module = bound_to(patch.value) if patch.bound else None
    if module is not None and ast.unparse(module) != ast.unparse(patch.target.value):
        return f"`{function.name}` is bound to an object other than the module"
    if sum(is_name(node, function.name) for node in ast.walk(around)) != 1:
        return f"`{function.name}` is also used elsewhere"
    if restores := [related.line for related in patch.finding.related if related.role == "restore"]:
        return f"line {restores[0]} puts the original back"
    keeps = _keeps(patch, around)
    original = ast.unparse(keeps.targets[0]) if keeps is not None else ""
    return WrapperSite(function, Calling(ast.unparse(patch.target), original, patch.bound), keeps)


def looked_at(patch: Patch, site: WrapperSite, gone: Sequence[ast.AST]) -> str:
    """Where something else sees the module's `forward` or the original, and would see another now; `gone` goes too."""
    taken = [*gone, site.function, patch.statement, *([site.keeps] if site.keeps else [])]
    names = {FORWARD, site.function.name}
    for node in walk_without(patch.source.tree, taken):
        if isinstance(node, ast.Constant) and node.value in names:
            return f"line {node.lineno} asks for `{node.value}` by name"
        if not isinstance(node, ast.Attribute | ast.Name) or patch.source.function_of(node) is not patch.around:
            continue
        if isinstance(node, ast.Attribute) and ast.unparse(node) == site.calling.target:
            return f"line {node.lineno} looks at `{site.calling.target}`"
        inner = isinstance(node, ast.Attribute) and node.attr == "__dict__" and not _is_of_another(patch, node)
        if inner or is_name(node, "vars"):
            return f"line {node.lineno} inspects the layer's attributes"
        if is_name(node, site.calling.original):
            used = patch.source.parents[node]
            if not (isinstance(used, ast.Call) and used.func is node):
                return f"line {node.lineno} passes the original on"
    return ""


def still_kept(patch: Patch, site: WrapperSite, gone: Sequence[ast.AST]) -> bool:
    """Whether other code of the function calls the original, which is kept for it then."""
    assert patch.around is not None
    taken = [*gone, site.function, *([site.keeps] if site.keeps else [])]
    return any(is_name(node, site.calling.original) for node in walk_without(patch.around, taken))


def _is_of_another(patch: Patch, node: ast.Attribute) -> bool:
    """`x.__dict__["name"]` of something that is not the method."""
    match patch.source.parents[node]:
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name != FORWARD
    return False


def _keeps(patch: Patch, around: Function) -> ast.Assign | None:
    """`original = module.forward`, the only one, of a local that never is anything else."""
    assigned = [node for node in ast.walk(around) if isinstance(node, ast.Assign)]
    keeping = [node for node in assigned if ast.unparse(node.value) == ast.unparse(patch.target)]
    given = parameters(around)
    if any(_times_stored(root, around) > (root not in given) for root in names_in(patch.target)):
        return None
    match keeping:
        case [ast.Assign(targets=[ast.Name(id=name)]) as only] if _times_stored(name, around) == 1:
            return only if patch.source.owns_lines(only) else None
    return None


def _times_stored(name: str, scope: ast.AST) -> int:
    return sum(is_stored(node, name) for node in ast.walk(scope))
