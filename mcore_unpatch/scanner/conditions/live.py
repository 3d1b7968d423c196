"""When does a patch run? The releases of Megatron Core on which the conditions around it hold."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Iterator

from mcore_unpatch.findings.finding import Guard, Live
from mcore_unpatch.megatron.versions import RELEASES
from mcore_unpatch.scanner.conditions.holding import Condition, both, conditions, holds, may_leave, run_on
from mcore_unpatch.scanner.conditions.literals import LATER, Named, Release, Run
from mcore_unpatch.scanner.names.resolver import Position
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import object_text, path_text

# What is asked of the object at hand, on every release: whether it is there, is of a class, was patched before.
_OF_THE_OBJECT = ("isinstance", "issubclass", "hasattr", "getattr", "callable")


def _runs(known: tuple[str, str] | None = None, named: Named | None = None) -> list[Run]:
    return [run_on(Release(label), known, named) for label in (*RELEASES, LATER)]


class Liveness:
    """When the patches of one file run: each condition is asked once, for all the patches it stands around."""

    def __init__(self) -> None:
        self._runs: dict[Hashable, list[Run]] = {}
        self._held: dict[Hashable, tuple[tuple[bool | None, ...], bool]] = {}  # and whether a release was asked for

    def of(self, install: Install, at: Position) -> Live:
        """The releases on which a patch is installed, what rules the others out, and what else it depends on."""
        name = object_text(install.base) if install.base is not None else None
        known = (name, install.owner) if name else None
        named: Named | None = None
        match install.site.node:
            case ast.Call(args=[_, ast.Name(id=looped), _]) if install.attribute != "*":
                named = install.site.scope, looped, install.attribute  # a loop runs over names, and one of them is this
        key = (known, named)
        if key not in self._runs:
            self._runs[key] = _runs(known, named)
        inner = conditions(install.inner) if install.inner is not None else ()
        around = (*_in_expression(install, at), *inner, *conditions(at))
        return self._of(around, self._runs[key], key)

    def at(self, place: Position) -> Live:
        """The releases on which a place is reached."""
        if None not in self._runs:
            self._runs[None] = _runs()
        return self._of(conditions(place), self._runs[None], None)

    def _of(self, around: Iterable[Condition], runs: list[Run], known: Hashable) -> Live:
        asked = [(condition, self._holds(condition, runs, known)) for condition in around]
        alive = [both(truths) for truths in zip(*(held for _, (held, _) in asked), strict=True)] or [True] * len(runs)
        dead = all(truth is False for truth in alive[:-1])
        depends = []
        for condition, (held, _) in asked:
            undecided = [run for run, truth, all_of in zip(runs, held, alive, strict=True) if truth is None is all_of]
            if undecided and (dead or not undecided[0].release.is_later):
                depends.append(_words(condition, undecided[0]))
        return Live(
            tuple(release for release, truth in zip(RELEASES, alive, strict=False) if truth is not False),
            newer=alive[-1] is not False,
            depends=tuple(dict.fromkeys(filter(None, depends))),
            guards=tuple(_guard(condition, *held) for condition, held in asked if False in held[0]),
        )

    def _holds(self, condition: Condition, runs: list[Run], known: Hashable) -> tuple[tuple[bool | None, ...], bool]:
        given = id(condition.at.given) if condition.at.given is not None else 0  # of a call that is looked into
        key = (condition.owner, condition.branch, condition.body[-1:], condition.test, known, given)
        if key not in self._held:
            runs[0].release.touched = False
            first = holds(condition, runs[0])
            asks = runs[0].release.touched
            rest = (holds(condition, run) for run in runs[1:]) if asks else [first] * len(RELEASES)
            self._held[key] = ((first, *rest), asks)
        return self._held[key]


def _guard(condition: Condition, held: tuple[bool | None, ...], asks: bool) -> Guard:
    owner = condition.owner
    dead = tuple(release for release, truth in zip(RELEASES, held, strict=False) if truth is False)
    return Guard(owner.lineno, owner.end_lineno or owner.lineno, condition.branch, dead, always=not asks)


def _in_expression(install: Install, at: Position) -> Iterator[Condition]:
    """Conditions within the statement itself: `old or setattr(...)`, `X.f = new if recent else X.f`."""
    value = install.value
    if install.shape == "sys-modules" and install.attribute and isinstance(install.node, ast.stmt | ast.expr):
        # A name is put into a module that is loaded: where there is none, nothing is done.
        yield Condition("loaded", install.node, at, ast.Constant(install.owner))
    if isinstance(value, ast.IfExp):
        for branch, arm in (("else", value.body), ("if", value.orelse)):
            ref = at.expr(arm)
            if ref is not None and ref.name == install.target:
                yield Condition(branch, value, at, value.test)
    node = install.site.node
    if isinstance(node, ast.Call) and isinstance(install.site.statement, ast.Expr):
        around: ast.expr = install.site.statement.value
        while around is not node:
            if isinstance(around, ast.BoolOp):
                branch = "if" if isinstance(around.op, ast.And) else "else"
                index = next((at for at, one in enumerate(around.values) if _contains(one, node)), 0)
                for test in around.values[:index]:
                    yield Condition(branch, around, at, test)
                around = around.values[index]
            elif isinstance(around, ast.IfExp) and not _contains(around.test, node):
                taken = _contains(around.body, node)
                yield Condition("if" if taken else "else", around, at, around.test)
                around = around.body if taken else around.orelse
            else:
                return


def _words(condition: Condition, run: Run) -> str:
    """The part of a condition that could not be decided, as it is written; empty for what is asked of the object."""
    test = condition.test or getattr(condition.owner, "test", None)
    if test is None or (
        isinstance(condition.owner, ast.stmt)
        and condition.branch == "after"
        and not may_leave(condition.owner, by_choice=True)
    ):
        return ""
    parts = [test]
    while any(isinstance(part, ast.BoolOp | ast.UnaryOp) for part in parts):
        parts = [inner for part in parts for inner in _parts(part)]
    open_parts = [part for part in parts if run.truth(part, condition.at) is None]
    flags = condition.at.scope.function.globals if condition.at.scope.function is not None else ()
    said = [
        ast.unparse(part)
        for part in open_parts
        if not _asks_the_object(part) and not (isinstance(part, ast.Name) and part.id in flags)
    ]
    return " and ".join(f"`{text}`" for text in said if len(text) < 100)


def _parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BoolOp):
        return node.values
    return [node.operand] if isinstance(node, ast.UnaryOp) else [node]


def _asks_the_object(node: ast.expr) -> bool:
    if isinstance(node, ast.Compare) and any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
        return any(isinstance(one, ast.Constant) and one.value is None for one in (node.left, *node.comparators))
    return isinstance(node, ast.Call) and path_text(node.func) in _OF_THE_OBJECT


def _contains(outer: ast.AST, inner: ast.AST) -> bool:
    return any(node is inner for node in walk(outer))
