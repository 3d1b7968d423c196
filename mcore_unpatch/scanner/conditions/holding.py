"""What has to hold for a place to be reached, and whether it does on one release of Megatron Core."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from mcore_unpatch.library.build import ALWAYS_THERE
from mcore_unpatch.megatron import known as megatron
from mcore_unpatch.megatron.layout import HOOK_SINCE
from mcore_unpatch.megatron.versions import parse_version, within
from mcore_unpatch.scanner.conditions.literals import SHIMS, Named, Release, Run
from mcore_unpatch.scanner.conditions.values import KINDS
from mcore_unpatch.scanner.names.resolver import Position, Resolver
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import Block, last_name, path_text

_NEAREST = 40  # statements above a place that are looked at, in each block around it
_MISSING = {"ImportError", "ModuleNotFoundError"}
_ANYTHING = {"Exception", "BaseException"}
_NO_ATTRIBUTE = "AttributeError"
_LEAVES = {"sys.exit", "exit", "quit", "os._exit", "pytest.skip"}
_EXITS = ast.Return | ast.Continue | ast.Break


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """Something that has to hold for a place to be reached.

    branch: `if` or `else` of a test, `after` a statement that may leave, `try`, `except` or `else` of a try, `value`
    where the condition stands in the expression itself, `loaded` for a module that `test` names, `asked` by a registry
    of what it gives alone.
    """

    branch: str
    owner: ast.stmt | ast.expr
    at: Position
    test: ast.expr | None = None
    body: tuple[ast.stmt, ...] = ()


def run_on(release: Release, known: tuple[str, str] | None = None, named: Named | None = None) -> Run:
    """Conditions on one release; `known` is an object as it is written and its class, `named` a name of a loop."""
    return Run(release, KINDS, _reaches, known, named)


def _reaches(run: Run, at: Position, seen_from: Position | None = None) -> bool | None:
    """Whether a place is reached; None where that is not known."""
    if seen_from is None:
        return both(holds(condition, run) for condition in conditions(at))
    asked = list(conditions(at))  # often nothing: a parameter is there wherever its function is
    held = {(condition.owner, condition.branch) for condition in conditions(seen_from)} if asked else ()
    return both(holds(condition, run) for condition in asked if (condition.owner, condition.branch) not in held)


def holds(condition: Condition, run: Run) -> bool | None:
    """Whether a condition holds on this release."""
    owner, at = condition.owner, condition.at
    match condition.branch:
        case "if":
            assert condition.test is not None
            return run.truth(condition.test, at)
        case "else" if condition.test is not None:
            return _not(run.truth(condition.test, at))
        case "loaded":
            assert isinstance(condition.test, ast.Constant)
            return not run.release.has_not_yet(str(condition.test.value))
        case "after":
            assert isinstance(owner, ast.stmt)
            return _falls(owner, at, run)
        case "try":
            return _not(_fails(condition.body, at, run))
        case "else" if isinstance(owner, ast.Try):
            return _not(_fails(owner.body, at, run))
        case "except" if isinstance(owner, ast.Try):
            fails = _fails(owner.body, at, run) if catches_missing(owner, condition.body) else None
            return None if fails is False and _may_raise(owner, at) else fails
    return None


def _falls(statement: ast.stmt, at: Position, run: Run) -> bool | None:
    """Whether what stands behind a statement is reached."""
    at = at._replace(line=statement.lineno)
    match statement:
        case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
            return False
        case ast.Import() | ast.ImportFrom():
            return not any(map(run.release.has_not_yet, imported(statement)))
        case ast.Assert(test=test):
            return run.truth(test, at)
        case ast.If(test=test, body=body, orelse=orelse):
            truth = run.truth(test, at)
            ways = [_fall(body, at, run), _fall(orelse, at, run)]
            return ways[not truth] if truth is not None else ways[0] if ways[0] is ways[1] else None
        case ast.With(body=body):
            return _fall(body, at, run)
        case ast.Try(body=body, handlers=handlers):
            fails = _fails(body, at, run)
            if fails is False:
                return _fall(body, at, run)
            # An error that no handler is for is one that nobody foresaw: it decides nothing.
            ways = [_fall(handler.body, at, run) for handler in handlers if _is_for_missing(handler)] or [None]
            ways += [_fall(body, at, run)] if fails is None else []
            return ways[0] if all(way is ways[0] for way in ways) else None
        case ast.Expr(value=ast.Call(func=func)):
            return path_text(func) not in _LEAVES
    return True


def _fall(statements: Iterable[ast.stmt], at: Position, run: Run) -> bool | None:
    return both(_falls(statement, at, run) for statement in statements if may_leave(statement))


def _fails(statements: Iterable[ast.stmt], at: Position, run: Run) -> bool | None:
    """Whether one of these raises because a name is missing."""
    unsure = False
    for statement in statements:
        failed = _misses(statement, at, run)
        if failed:
            return None if unsure else True
        unsure = unsure or failed is None
    return None if unsure else False


def _may_raise(owner: ast.Try, at: Position) -> bool:
    """Whether what a `try` calls, or raises itself, may be what its handler is for: it asks for nothing by name."""
    inside = [node for statement in owner.body for node in walk(statement)]
    if any(isinstance(node, ast.Import | ast.ImportFrom) for node in inside):
        return False
    asks = (at.home.core_reads, _imports_by_call)
    if any(at.home.once(ask, statement) for statement in owner.body for ask in asks):
        return False
    return any(isinstance(node, ast.Call | ast.Raise) for node in inside)


def _misses(statement: ast.stmt, at: Position, run: Run) -> bool | None:
    match statement:
        case ast.ImportFrom(module=module, names=names, level=0) if module is not None:
            return _any(_lacks(f"{module}.{alias.name}" if alias.name != "*" else module, run) for alias in names)
        case ast.Import(names=names):
            return _any(_lacks(alias.name, run) for alias in names)
        case ast.ImportFrom():
            return None
        case ast.Assign() | ast.AnnAssign() | ast.Expr() | ast.Return() | ast.FunctionDef() | ast.ClassDef():
            return _reads_missing(statement, at, run)
    return None if any(isinstance(node, ast.Import | ast.ImportFrom) for node in walk(statement)) else False


def _lacks(name: str, run: Run) -> bool | None:
    if within(name):
        lacks = _not(run.release.has(name))
        # What is there fails to load where a package is missing that it imports and not everybody has.
        return None if lacks is False and megatron.needed(name, run.release.model) else lacks
    if name.startswith(SHIMS):  # they raise where the hook is not there
        run.release.touched = True
        return parse_version(run.release.label) < HOOK_SINCE
    return False if name.partition(".")[0] in ALWAYS_THERE else None


def _reads_missing(statement: ast.stmt, at: Position, run: Run) -> bool | None:
    """Whether a statement reads `module.name` or `Class.name` of Megatron's that this release does not have."""
    if any(run.release.has(name) is False for name in at.home.once(at.home.core_reads, statement)):
        return True
    for call in at.home.once(_imports_by_call, statement):
        name = run.value(call.args[0], at._replace(line=statement.lineno)) if call.args else None
        lacks = _lacks(name, run) if isinstance(name, str) else None
        if lacks is not False:
            return lacks
    return False


def _imports_by_call(statement: ast.AST) -> list[ast.Call]:
    calls = [node for node in walk(statement) if isinstance(node, ast.Call)]
    return [call for call in calls if (path_text(call.func) or "").endswith(("import_module", "__import__"))]


def conditions(at: Position) -> Iterator[Condition]:
    """What has to hold for a place to be reached, from the inside out: tests around it, exits above it."""
    home, scope, block, line, given = at
    statements = home.statements_of
    while True:
        body = statements.get(block, [])
        leaving = home.kept((_leaving, block), partial(_leaving, home, block))
        above = bisect_left(leaving, line, key=attrgetter("end_lineno"))  # not what it stands in
        for statement in leaving[max(0, above - _NEAREST) : above]:
            home.project.effort.spend()
            yield Condition("after", statement, Position(home, scope, block, statement.lineno, given))
        owner, parent = block.owner, block.parent
        if owner is None or parent is None:
            return
        upto, line = line, owner.lineno
        if block.kind in {"function", "class"}:
            if given is not None:
                return  # the call that is looked into is reached
            assert scope.parent is not None
            scope = scope.parent
        outside = Position(home, scope, parent, line, given)
        for test in home.once(_asked_by_decorators, owner) if block.kind == "function" else ():
            yield Condition("asked", owner, outside, test)
        if isinstance(owner, ast.If):
            yield Condition(block.kind, owner, outside, owner.test)
        elif isinstance(owner, ast.Try) and block.kind == "try":
            above = bisect_left(body, upto, key=attrgetter("end_lineno"))
            yield Condition("try", owner, outside, body=tuple(body[max(0, above - _NEAREST) : above]))
        elif isinstance(owner, ast.Try) and block.kind in {"except", "else"}:
            yield Condition(block.kind, owner, outside, body=tuple(body))
        elif isinstance(owner, ast.Match):
            yield Condition("case", owner, outside, owner.subject)
        block = parent


def _asked_by_decorators(function: ast.AST) -> list[ast.expr]:
    """What a registry asks before it calls a function: `@register(condition=lambda context: ...)`."""
    calls = [decorator for decorator in getattr(function, "decorator_list", ()) if isinstance(decorator, ast.Call)]
    asked = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "condition"]
    return [one.body if isinstance(one, ast.Lambda) else ast.copy_location(ast.Call(one, [], []), one) for one in asked]


def _leaving(home: Resolver, block: Block) -> list[ast.stmt]:
    """The statements of a block that can keep what stands behind them from being reached."""
    in_function = block.parent is not None  # what a whole file imports says nothing of one patch
    statements = home.statements_of.get(block, ())
    return [statement for statement in statements if may_leave(statement) or (in_function and imported(statement))]


def may_leave(statement: ast.stmt, by_choice: bool = False) -> bool:
    """Whether a statement returns, raises or leaves the loop, always or in one of its branches.

    `by_choice`: where that is no error. An exception and an assertion end more than what stands behind them.
    """
    body: list[ast.stmt] = []
    match statement:
        case ast.Expr(value=ast.Call(func=func)):
            return path_text(func) in _LEAVES
        case ast.If() | ast.With():
            body = [*statement.body, *getattr(statement, "orelse", ())]
        case ast.Try(handlers=handlers):
            caught = [] if by_choice else [inner for handler in handlers for inner in handler.body]
            body = [*statement.body, *caught, *statement.orelse]
        case ast.Raise() | ast.Assert():
            return not by_choice
    return isinstance(statement, _EXITS) or any(may_leave(inner, by_choice) for inner in body)


def imported(statement: ast.stmt) -> list[str]:
    """The names of Megatron's that a statement imports: it raises where they are not there."""
    modules: list[str] = []
    if isinstance(statement, ast.Import):
        modules = [alias.name for alias in statement.names]
    elif isinstance(statement, ast.ImportFrom) and not statement.level and within(f"{statement.module}."):
        modules = [f"{statement.module}.{alias.name}".removesuffix(".*") for alias in statement.names]
    return [name for name in modules if within(name)]


def catches_missing(owner: ast.Try, body: tuple[ast.stmt, ...]) -> bool:
    """Whether the handler with this body is the one for a name that is missing."""
    for handler in owner.handlers:
        names = _caught(handler)
        fits = _is_for_missing(handler)
        if handler.body and body and handler.body[0] is body[0]:
            only_missing = bool(names) and names <= _MISSING | {_NO_ATTRIBUTE}
            return fits and (only_missing or all(_is_quiet(statement) for statement in owner.body))
        if fits:
            return False  # one above it catches it first
    return False


def _is_for_missing(handler: ast.ExceptHandler) -> bool:
    """Whether a handler gets what a name that is missing raises."""
    names = _caught(handler)
    return not names or bool(names & (_MISSING | _ANYTHING | {_NO_ATTRIBUTE}))


def _caught(handler: ast.ExceptHandler) -> set[str]:
    """The exceptions a handler is for; empty for all of them."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {last_name(node) for node in caught if node is not None}


def _is_quiet(statement: ast.stmt) -> bool:
    """Imports and plain assignments: if these raise, a name is missing."""
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass):
        return True
    return isinstance(statement, ast.Assign) and not any(isinstance(node, ast.Call) for node in walk(statement))


def both(truths: Iterable[bool | None]) -> bool | None:
    """The logical and of what may be unknown."""
    unknown = False
    for truth in truths:
        if truth is False:
            return False
        unknown = unknown or truth is None
    return None if unknown else True


def _any(truths: Iterable[bool | None]) -> bool | None:
    return _not(both(_not(truth) for truth in truths))


def _not(truth: bool | None) -> bool | None:
    return None if truth is None else not truth
