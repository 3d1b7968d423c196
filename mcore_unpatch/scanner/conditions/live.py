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
_MARK = "_"  # begins the names of what a patch leaves behind
_LONGEST = 100  # letters of a part of a condition that is said
_TURNED = {ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {**_TURNED, **{other: sign for sign, other in _TURNED.items()}}


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
                depends.append(_words(condition, undecided[0], True not in held))
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
                index = next((at for at, value in enumerate(around.values) if _contains(value, node)), 0)
                for test in around.values[:index]:
                    yield Condition(branch, around, at, test)
                around = around.values[index]
            elif isinstance(around, ast.IfExp) and not _contains(around.test, node):
                taken = _contains(around.body, node)
                yield Condition("if" if taken else "else", around, at, around.test)
                around = around.body if taken else around.orelse
            else:
                return


def _words(condition: Condition, run: Run, is_everywhere: bool) -> str:
    """What a condition asks for that could not be decided, as it is written; empty for what is asked of the object.

    is_everywhere: no release meets it whatever else holds.
    """
    wanted = {"if": True, "else": False, "asked": True}.get(condition.branch)
    test = condition.test or getattr(condition.owner, "test", None)
    if condition.branch == "after" and isinstance(condition.owner, ast.stmt):
        test = test if may_leave(condition.owner, by_choice=True) else None
        match condition.owner:
            case ast.If(body=[*_, last], orelse=others) if may_leave(last) and not hasattr(last, "body"):
                wanted = None if any(map(may_leave, others)) else False
    if test is None or (condition.branch != "asked" and run.truth(test, condition.at) is not None):
        return ""
    said, is_all = _open(test, wanted is not False, condition.at, run)
    if not said or (is_all and is_everywhere and wanted is not None):
        return f"only if {' and '.join(said)}" if said else ""
    return f"depends on {', '.join(word.removeprefix('not ') for word in said)}"


def _open(test: ast.expr, wanted: bool, at: Position, run: Run) -> tuple[list[str], bool]:
    """What of a test could not be decided and has to hold, and whether that is all that can be said of it."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _open(inner, not wanted, at, run)
        case ast.BoolOp(op=op, values=values):
            parts = [_open(value, wanted, at, run) for value in values if run.truth(value, at) is None]
            said = [text for texts, _ in parts for text in texts]
            if len(parts) < 2 or isinstance(op, ast.And) is wanted:
                return said, all(is_all for _, is_all in parts)
            one_each = all(is_all and len(texts) == 1 for texts, is_all in parts)
            return ([f"({' or '.join(said)})"] if one_each else said), one_each
        case ast.Compare(left=left, ops=[op], comparators=others) if not wanted and type(op) in _OPPOSITES:
            return _open(ast.Compare(left, [_OPPOSITES[type(op)]()], others), True, at, run)
    text, function = ast.unparse(test), at.scope.function
    is_flag = isinstance(test, ast.Name) and function is not None and test.id in function.globals
    if _asks_the_object(test) or is_flag or len(text) >= _LONGEST:
        return [], True
    return [f"`{text}`" if wanted else f"not `{text}`"], True


def _asks_the_object(node: ast.expr) -> bool:
    if isinstance(node, ast.Compare) and any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
        return any(isinstance(side, ast.Constant) and side.value is None for side in (node.left, *node.comparators))
    match node:
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            return name.startswith(_MARK)
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Attribute(), *_]):
            return False
    return isinstance(node, ast.Call) and path_text(node.func) in _OF_THE_OBJECT


def _contains(outer: ast.AST, inner: ast.AST) -> bool:
    return any(node is inner for node in walk(outer))
