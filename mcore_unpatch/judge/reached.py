"""Whether a line of the repository is reached on a release: conditions around it, exits above it, handlers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.judge.meaning import only_value, written
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import RELEASES
from mcore_unpatch.scanner.conditions.holding import Condition, conditions, run_on
from mcore_unpatch.scanner.conditions.literals import Release
from mcore_unpatch.scanner.names.resolver import Position, Resolver
from mcore_unpatch.scanner.sources.effort import Exhausted
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import Block, Scope, path_text

Tests = tuple[tuple[ast.expr, bool], ...]
_MOST_STEPS = 20_000  # for the conditions around one line
_MOST_SHOWN = 70  # letters of a condition
_ALWAYS = {"Exception", "BaseException", ""}  # a handler without a name among them
_EXPECTS = {"suppress", "raises", "assertRaises", "assertRaisesRegex"}
_CATCHES = {"ImportError": {"ImportError", "ModuleNotFoundError"}}
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.NotEq: ast.Eq, ast.IsNot: ast.Is, ast.NotIn: ast.In}
_ASKS = {"getattr", "hasattr", "isinstance"}  # calls that give the same each time


def on(model: Model, at: Position, tests: Tests) -> bool:
    """Whether a release reaches a place; `tests` are those in its own statement, each with what it has to be."""
    run = run_on(Release(model.label, None if model.label in RELEASES else model))
    try:
        with at.home.project.effort.at_most(_MOST_STEPS):
            if any(run.truth(test, at) is (not wanted) for test, wanted in tests):
                return False
            return run.reaches(at) is not False and not _ruled_out(at, tests, model)
    except Exhausted:
        return True  # what keeps it from running is too much to work out


def only_where(model: Model, at: Position, tests: Tests = ()) -> str:
    """In words, the innermost condition for a place in its function that a release which comes there leaves open."""
    for asked, wanted, where in (*((*test, at) for test in reversed(tests)), *_conditions_within(at)):
        turned = isinstance(asked, ast.UnaryOp) and isinstance(asked.op, ast.Not)
        test, holds = (asked.operand, not wanted) if turned else (asked, wanted)  # type: ignore[attr-defined]
        text = ast.unparse(test)
        if "__name__" not in text and _truth(model, test, where, comes=True) is None:
            if len(text) > _MOST_SHOWN:
                return f", only if the condition on line {asked.lineno} is {str(wanted).lower()}"
            return f", only if `{text}` is {str(holds).lower()}"
    return ""


def _conditions_within(at: Position) -> Iterator[tuple[ast.expr, bool, Position]]:
    """The tests in the function around a place that have to hold for it, from the inside out: no checks that raise."""
    first = getattr(at.scope.function and at.scope.function.node, "lineno", 0)
    for condition in conditions(at):
        owner = condition.owner
        if owner.lineno < first:
            return
        raises = isinstance(owner, ast.Assert) or (
            condition.branch == "after" and isinstance(getattr(owner, "body", [None])[-1], ast.Raise)
        )
        if owner.lineno != at.line and not raises:
            yield from ((*fact, condition.at) for fact in _told(condition))


def turned(function: ast.AST, home: Resolver, old: Model, new: Model) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions in a function that are false on one of two releases and true on the other, and what they are now.

    A test that this code makes of Megatron for itself: from now on it takes its other branch. One for a parameter
    (`"name" in parameters`) only passes what is taken.
    """
    for node in walk(function):
        if isinstance(node, ast.If | ast.IfExp) and not any(
            isinstance(part, ast.In | ast.NotIn) for part in ast.walk(node.test)
        ):
            at = home.on_line(node.test.lineno)
            if at.block.owner is node and at.block.parent is not None:
                at = at._replace(block=at.block.parent)  # all of it stands on one line
            then, now = (_truth(model, node.test, at) for model in (old, new))
            if then is not None and now is not None and then is not now:
                yield node.test, now


def _truth(model: Model, test: ast.expr, at: Position, comes: bool = False) -> bool | None:
    run = run_on(Release(model.label, None if model.label in RELEASES else model))
    try:
        with at.home.project.effort.at_most(_MOST_STEPS):
            return run.truth(test, at) if comes or run.reaches(at) is not False else None
    except Exhausted:
        return None


def is_caught(block: Block | None, exception: str) -> bool:
    """Whether a `try`, a `suppress` or a `raises` around a block, within the same function, handles an exception."""
    caught = handler_of(block, exception)
    return caught is not None and not (isinstance(caught, ast.ExceptHandler) and isinstance(caught.body[-1], ast.Raise))


def handler_of(block: Block | None, exception: str) -> ast.ExceptHandler | ast.With | None:
    """What gets an exception that a block raises, within the same function; it may hand it on, in other words maybe."""
    wanted = _CATCHES.get(exception, {exception}) | _ALWAYS
    while block is not None and block.kind not in ("function", "class"):
        if isinstance(block.owner, ast.With):
            calls = [item.context_expr for item in block.owner.items if isinstance(item.context_expr, ast.Call)]
            quiet = [call for call in calls if (path_text(call.func) or "").rpartition(".")[2] in _EXPECTS]
            if any(wanted & _names(name) for call in quiet for name in call.args):
                return block.owner
        if block.kind == "try" and isinstance(block.owner, ast.Try):
            for handler in block.owner.handlers:
                if wanted & _names(handler.type):
                    return handler
        block = block.parent
    return None


def _names(types: ast.expr | None) -> set[str]:
    """The exceptions that are named, without their modules; an empty name where there is none."""
    every = types.elts if isinstance(types, ast.Tuple) else [types]
    return {"" if caught is None else (path_text(caught) or "?").rpartition(".")[2] for caught in every}


def _ruled_out(at: Position, tests: Tests, model: Model) -> bool:
    """Whether two conditions exclude each other, `assert kind != other` above `if kind == other`, or a key is gone."""
    held: dict[str, dict[bool, ast.expr]] = {}
    given = [*tests, *(fact for condition in conditions(at) for fact in _told(condition))]
    for test, wanted in (plain for fact in given for plain in _plain(*fact)):
        if wanted and _is_lost_key(test, at.home, model):
            return True
        ways = held.setdefault(ast.unparse(test), {})
        other = ways.get(not wanted)
        if other is not None and _is_the_same(test, other, at.scope):
            return True
        ways[wanted] = test
    return False


def _is_lost_key(test: ast.expr, home: Resolver, model: Model) -> bool:
    """`"values" in Class.held`, where Megatron set that key once, and neither this release nor the file does."""
    match test:
        case ast.Compare(left=ast.Constant(value=str(key)), ops=[ast.In()], comparators=[ast.expr() as of]):
            held = only_value(of, home) if isinstance(of, ast.Name) else of
            meant = written(held, home) if isinstance(held, ast.Attribute) else None
            now, *ever = (keys_of(meant.names[0], one) for one in (model, *known.minors())) if meant else (set(),)
            stores = (node for node in walk(home.model.tree) if isinstance(getattr(node, "ctx", None), ast.Store))
            own = (getattr(getattr(node, "slice", None), "value", None) for node in stores)
            return bool(now) and key not in now and any(key in keys for keys in ever) and key not in own
    return False


def keys_of(name: str, model: Model) -> set[str]:
    """The keys that a release sets in a dict of a class."""
    fact = model.facts.get(name)
    return set(filter(None, (fact.trait("keys") or "").split(","))) if fact is not None else set()


def _told(condition: Condition) -> Iterator[tuple[ast.expr, bool]]:
    """What a condition says of a test: it is true, or it is false."""
    match condition.branch, condition.owner:
        case ("if" | "else") as branch, _ if condition.test is not None:
            yield condition.test, branch == "if"
        case "after", ast.Assert(test=test):
            yield test, True
        case "after", ast.If(test=test, body=[*_, last], orelse=[]) if isinstance(last, ast.Return | ast.Raise):
            yield test, False


def _plain(test: ast.expr, wanted: bool) -> Iterator[tuple[ast.expr, bool]]:
    """The parts of a test that have to hold, without `not`, `!=` and the like."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _plain(operand, not wanted)
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) is wanted:
            for value in values:
                yield from _plain(value, wanted)
        case ast.Compare(left=left, ops=[op], comparators=others) if type(op) in _OPPOSITES:
            yield ast.copy_location(ast.Compare(left, [_OPPOSITES[type(op)]()], others), test), not wanted
        case _:
            yield test, wanted


def _is_the_same(left: ast.expr, other: ast.expr, scope: Scope) -> bool:
    """Whether two tests that read alike ask for the same: no name of theirs is set from the first one on.

    What an object holds may be changed by any call in between; modules and classes that were imported stay as they are.
    """
    first = min(left.lineno, other.lineno)
    nodes = list(walk(left))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    if not _ASKS.issuperset(path_text(node.func) for node in calls):
        return False
    if any(isinstance(node, ast.NamedExpr | ast.Await | ast.Subscript) for node in nodes):
        return False
    holders = [node.value for node in nodes if isinstance(node, ast.Attribute)]
    holders += [node.args[0] for node in calls if node.args and path_text(node.func) != "isinstance"]
    imported = {(path_text(node) or "").partition(".")[0] for node in holders}
    for name in {node.id for node in nodes if isinstance(node, ast.Name)} | imported:
        bound = next((around.bindings[name] for around in scope.chain() if name in around.bindings), [])
        kinds = {binding.kind for binding in bound} - {"narrow"}
        if name in imported and not (kinds and kinds <= {"import", "from"}):
            return False
        if any(binding.line >= first for binding in bound if binding.kind != "narrow"):
            return False
    return True
