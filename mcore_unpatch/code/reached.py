"""Is a place reached on one release of a library? True, False, or None where that is not known.

`Reached.at` asks each condition on the way to the place; `evaluate` says what the expressions in them are worth.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mcore_unpatch.code.conditions import Condition, Way, conditions, may_leave
from mcore_unpatch.code.evaluate import VISITORS
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import children, last_name, spelled, walk
from mcore_unpatch.code.values import Kind, Value
from mcore_unpatch.code.worth import MISSING, UNKNOWN, Given, both, negated, truth
from mcore_unpatch.library.interface import Release

_MISSING = {"ImportError", "ModuleNotFoundError", "AttributeError"}
_IMPORTERS = ("import_module", "__import__")
_ANYTHING = {"Exception", "BaseException"}
_ALWAYS_THERE = frozenset({*sys.stdlib_module_names, "torch", "numpy", "packaging", "typing_extensions"})
_LEAVES = {"sys.exit", "exit", "quit", "os._exit", "pytest.skip"}
_DEEPEST = 30
_MOST_STEPS = 500  # expressions that one question is worked out by


class Guards:
    """What the code of a repository asks on the way to a place, whatever the release: read once for all of them."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.installing: dict[ast.AST, list[ast.Call]] = {}  # functions, and where they are called, if that is known
        self.called: dict[tuple[ast.Call, str], bool | None] = {}  # by the first call of an installer, and the release
        self.decided: dict[object, bool | None] = {}  # conditions that ask for no release
        self._conditions: dict[ast.AST, tuple[Condition, ...]] = {}
        self._reads: dict[ast.AST, tuple[str, ...]] = {}
        self._imports: dict[ast.AST, tuple[ast.Call, ...]] = {}

    def conditions(self, node: ast.AST) -> tuple[Condition, ...]:
        """Everything that decides on the way to a node."""
        if node not in self._conditions:
            self._conditions[node] = tuple(conditions(node))
        return self._conditions[node]

    def imports_by_call(self, statement: ast.AST) -> tuple[ast.Call, ...]:
        """The calls of `import_module` in a statement."""
        if statement not in self._imports:
            calls = (node for node in walk(statement) if isinstance(node, ast.Call))
            self._imports[statement] = tuple(one for one in calls if last_name(one.func) in _IMPORTERS)
        return self._imports[statement]

    def reads(self, statement: ast.AST) -> tuple[str, ...]:
        """The library's names that a statement reads as attributes, where it is run itself."""
        if statement not in self._reads:
            self._reads[statement] = tuple(dict.fromkeys(self._read(statement)))
        return self._reads[statement]

    def _read(self, statement: ast.AST) -> Iterator[str]:
        todo: list[ast.AST] = [statement]
        while todo:
            node = todo.pop()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                todo += [*node.decorator_list, *node.args.defaults]
            elif not isinstance(node, ast.Lambda):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    for base in self.names.of(node.value):
                        if base.node is None and base.kind in (Kind.MODULE, Kind.CLASS):
                            yield from (
                                name for name in [f"{base.name}.{node.attr}"] if self.names.library.within(name)
                            )
                todo += children(node)


class Reached:
    """Answers for one release. subject: an expression as it is written, and what it is by what is done to it."""

    def __init__(self, guards: Guards, release: Release, subject: tuple[str, Value] | None = None) -> None:
        self.guards, self.names, self.subject = guards, guards.names, subject
        self.is_later = release.is_later
        self._release, self._asked_release = release, False
        self._bindings: dict[object, tuple[object, bool, Given | None]] = {}
        self._depth = self._steps = 0

    @property
    def release(self) -> Release:
        """The release; whoever reads it has asked for it."""
        self._asked_release = True
        return self._release

    def at(self, node: ast.AST, given: Given | None = None) -> bool | None:
        """Whether everything that decides on the way to a node comes out as it must."""
        return both(self.holds(condition, given) for condition in self.guards.conditions(node))

    def between(self, node: ast.AST, seen_from: ast.AST, given: Given | None = None) -> bool | None:
        """Whether a node is reached, given that another one is."""
        asked = self.guards.conditions(node)
        if not asked:
            return True
        held = set(self.guards.conditions(seen_from))
        return both(self.holds(condition, given) for condition in asked if condition not in held)

    def holds(self, condition: Condition, given: Given | None = None) -> bool | None:
        """Whether one condition holds."""
        key = (condition, self.subject, id(given) if given is not None else 0)
        if key in self.guards.decided:
            return self.guards.decided[key]
        before, self._asked_release = self._asked_release, False
        answer = self._holds(condition, given)
        if not self._asked_release and given is None and not self._depth:
            self.guards.decided[key] = answer
        self._asked_release = self._asked_release or before
        return answer

    def _holds(self, condition: Condition, given: Given | None) -> bool | None:
        node: Any = condition.node
        if condition.way == Way.TEST:
            value = self.value(node, given)
            came_out = False if value is MISSING else truth(value)
            return came_out if value is MISSING or came_out is None else came_out is condition.truth
        if condition.way == Way.PASSED:
            return self._passes(node, given)
        if condition.way == Way.TRIED:
            return negated(self._fails(condition.before, given))
        return self._is_caught(node, given)

    def value(self, node: ast.AST | None, given: Given | None = None) -> object:
        """What an expression is worth, or `UNKNOWN`."""
        visit = VISITORS.get(node.__class__)
        self._steps = self._steps + 1 if self._depth else 0
        if visit is None or self._depth > _DEEPEST or self._steps > _MOST_STEPS:
            return UNKNOWN
        self._depth += 1
        try:
            return visit(self, node, given)
        finally:
            self._depth -= 1

    def remembered(self, key: object, given: Given | None, work_out: Callable[[], object]) -> object:
        """What a binding is worth, worked out when it is asked for first."""
        whole = (key, id(given) if given is not None else 0)
        if whole not in self._bindings:
            before, self._asked_release = self._asked_release, False
            self._bindings[whole] = (UNKNOWN, False, given)  # what a cycle gets to see
            value = work_out()
            self._bindings[whole] = (value, self._asked_release, given)
            self._asked_release = before
        value, asked, _ = self._bindings[whole]
        self._asked_release = self._asked_release or asked
        return value

    # -- statements --------------------------------------------------------------------------------------------------

    def _passes(self, statement: ast.stmt, given: Given | None) -> bool | None:
        """Whether what stands behind a statement is reached."""
        if isinstance(statement, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
            return False
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            return not any(map(self.release.lacks_yet, self._imported(statement)))
        if isinstance(statement, ast.Assert):
            return truth(self.value(statement.test, given))
        if isinstance(statement, ast.If):
            came_out = truth(self.value(statement.test, given))
            ways = [self._pass(statement.body, given), self._pass(statement.orelse, given)]
            return ways[not came_out] if came_out is not None else ways[0] if ways[0] is ways[1] else None
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            return self._pass(statement.body, given)
        if isinstance(statement, (ast.Try, ast.TryStar)):
            return self._passes_try(statement, given)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            return spelled(statement.value.func) not in _LEAVES
        return True

    def _passes_try(self, statement: Any, given: Given | None) -> bool | None:
        fails = self._fails(statement.body, given)
        if fails is False:
            return self._pass(statement.body, given)
        # An error that no handler is for is one that nobody foresaw: it decides nothing.
        ways = [self._pass(handler.body, given) for handler in statement.handlers if _is_for_missing(handler)] or [None]
        ways += [self._pass(statement.body, given)] if fails is None else []
        return ways[0] if all(way is ways[0] for way in ways) else None

    def _pass(self, statements: Iterable[ast.stmt], given: Given | None) -> bool | None:
        return both(self._passes(statement, given) for statement in statements if may_leave(statement))

    def _imported(self, statement: ast.stmt) -> list[str]:
        """The names of the library that a statement imports."""
        found: list[str] = []
        if isinstance(statement, ast.Import):
            found = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            found = [f"{statement.module}.{alias.name}".removesuffix(".*") for alias in statement.names]
        return [name for name in found if self.names.library.within(name)]

    # -- what fails --------------------------------------------------------------------------------------------------

    def _is_caught(self, handler: ast.ExceptHandler, given: Given | None) -> bool | None:
        around: Any = handler._parent  # type: ignore[attr-defined]
        for other in around.handlers:
            if other is handler:
                caught = _caught(handler)
                only_missing = bool(caught) and caught <= _MISSING
                if not _is_for_missing(handler) or not (only_missing or all(map(_is_quiet, around.body))):
                    return None
                fails = self._fails(around.body, given)
                return None if fails is False and self._may_raise(around) else fails
            if _is_for_missing(other):
                return None  # one above it catches it first
        return None

    def _fails(self, statements: Iterable[ast.stmt], given: Given | None) -> bool | None:
        """Whether one of some statements raises because a name is missing."""
        unsure = False
        for statement in statements:
            failed = self._misses(statement, given)
            if failed:
                return None if unsure else True
            unsure = unsure or failed is None
        return None if unsure else False

    def _misses(self, statement: ast.stmt, given: Given | None) -> bool | None:
        if isinstance(statement, ast.ImportFrom):
            if statement.level or statement.module is None:
                return None
            names = (f"{statement.module}.{alias.name}".removesuffix(".*") for alias in statement.names)
            return negated(both(negated(self._lacks(name)) for name in names))
        if isinstance(statement, ast.Import):
            return negated(both(negated(self._lacks(alias.name)) for alias in statement.names))
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return, ast.FunctionDef, ast.ClassDef)):
            return self._reads_missing(statement, given)
        return None if any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in walk(statement)) else False

    def _lacks(self, name: str) -> bool | None:
        if self.names.library.within(name):
            lacks = negated(self.release.has(name))
            # What is there fails to load where a package is missing that it imports and not everybody has.
            return None if lacks is False and self.release.may_fail(name) else lacks
        return False if name.partition(".")[0] in _ALWAYS_THERE else None

    def _reads_missing(self, statement: ast.stmt, given: Given | None) -> bool | None:
        """Whether a statement reads `module.name` or `Class.name` that this release does not have."""
        if any(self.release.has(name) is False for name in self.guards.reads(statement)):
            return True
        for call in self.guards.imports_by_call(statement):
            name = self.value(call.args[0], given) if call.args else None
            lacks = self._lacks(name) if isinstance(name, str) else None
            if lacks is not False:
                return lacks
        return False

    def _may_raise(self, around: Any) -> bool:
        """Whether what a `try` calls may be what its handler is for: it asks for nothing by name."""
        inside = [node for statement in around.body for node in walk(statement)]
        if any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in inside):
            return False
        if any(self.guards.reads(one) or self.guards.imports_by_call(one) for one in around.body):
            return False
        return any(isinstance(node, (ast.Call, ast.Raise)) for node in inside)


def _caught(handler: ast.ExceptHandler) -> set[str]:
    """The exceptions a handler is for; empty for all of them."""
    named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {last_name(node) for node in named if node is not None}


def _is_for_missing(handler: ast.ExceptHandler) -> bool:
    """Whether a handler gets what a name that is missing raises."""
    caught = _caught(handler)
    return not caught or bool(caught & (_MISSING | _ANYTHING))


def _is_quiet(statement: ast.stmt) -> bool:
    """Imports and plain assignments: if these raise, a name is missing."""
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.Pass)):
        return True
    return isinstance(statement, ast.Assign) and not any(isinstance(node, ast.Call) for node in walk(statement))
