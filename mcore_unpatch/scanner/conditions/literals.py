"""Literals, operators and comparisons of the scanned code, worked out where their parts are known: nothing is run."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import known as megatron
from mcore_unpatch.megatron.layout import COMPILED
from mcore_unpatch.megatron.versions import RELEASES, ROOT, TRAINING, TRAINING_SINCE, parse_version
from mcore_unpatch.scanner.names.resolver import Position, Ref
from mcore_unpatch.scanner.sources.scopes import Binding, Scope

LATER: Final = "0.99.0"  # stands for any release that is newer than the known ones
LONGEST = 1000  # items of what is looped over
_DEEPEST = 30
SHIMS: Final = "mcore_unpatch.compat."
# A name of a scope that runs over several, and the one of them at hand.
Named = tuple[Scope, str, str]
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
Handler = Callable[[Any, Position, "Run"], object]


class Release:
    """What a release has. `touched` tells whether an answer leaned on which release it is."""

    def __init__(self, label: str, model: Model | None = None) -> None:
        self.label, self._model = label, model  # the model where it is none of the known releases
        self.touched = False

    @property
    def is_later(self) -> bool:
        """Whether it stands for those to come."""
        return self.label == LATER

    @property
    def model(self) -> Model:
        """What this release defines; the newest that is known stands for those to come."""
        return self._model or megatron.model(RELEASES[-1] if self.is_later else self.label)

    def has(self, name: str) -> bool | None:
        """Whether this release has a name of Megatron's; None where that is the machine's matter."""
        self.touched = True
        if name.startswith(COMPILED):
            return None
        if f"{name}.".startswith(f"{TRAINING}.") and parse_version(self.label) < TRAINING_SINCE:
            return None  # where it was, it came with a checkout
        if self.is_later:  # what the newest has or has lost; of other names nothing is known
            return megatron.has(name, RELEASES[-1]) if megatron.ever(name) else None
        return megatron.holds(self.model, name) if self._model is not None else megatron.has(name, self.label)

    def has_not_yet(self, name: str) -> bool:
        """Whether this release is older than the first that has a name. One that has lost it breaks: another matter."""
        if not name.startswith(ROOT) or self.label not in RELEASES or self.has(name) is not False:
            return False
        since = megatron.first(name)
        return since is not None and RELEASES.index(self.label) < RELEASES.index(since)

    def version_fact(self, name: str) -> object:
        """A name of the module that holds the version; None for any other."""
        self.touched = True
        major, minor, patch = map(int, self.label.split(".")[:3])
        numbers = {"MAJOR": major, "MINOR": minor, "PATCH": patch, "VERSION": (major, minor, patch, "")}
        return self.label if name in {"__version__", "__shortversion__"} else numbers.get(name)

    def parameters(self, name: str) -> tuple[str, ...] | None:
        """The parameters of a function or a class of Megatron's."""
        self.touched = True
        return megatron.parameter_names(name, self.model)


class _Unknown:
    def __bool__(self) -> bool:
        raise TypeError("an unknown value is neither true nor false")


UNKNOWN: Final = _Unknown()


class _Absent:
    def __bool__(self) -> bool:
        return False


# What `getattr(Class, "member", None)` gives where the class lacks the member: nothing else is that member.
ABSENT: Final = _Absent()


class ParameterNames(tuple[str, ...]):
    """The names of a signature's parameters."""

    __slots__ = ()


class Run:
    """Expressions on one release: `kinds` says how each kind is worked out, `reaches` whether a position is reached."""

    def __init__(
        self,
        release: Release,
        kinds: Mapping[type, Handler],
        reaches: Callable[[Run, Position, Position | None], bool | None],
        known: tuple[str, str] | None = None,
        named: Named | None = None,
    ) -> None:
        self.release, self._kinds, self._reaches = release, kinds, reaches
        self.named = named
        self.object = known  # an object as it is written, and its class: known by what is done to it
        self.bindings: dict[tuple[Binding, int], tuple[object, bool, object]] = {}
        self._depth = 0

    def truth(self, node: ast.expr, at: Position) -> bool | None:
        """Whether an expression is true; None where that is not known."""
        return as_bool(self.value(node, at))

    def value(self, node: ast.AST | None, at: Position) -> object:
        """What an expression is worth, or `UNKNOWN`; a name of Megatron's or of the repository is a `Ref`."""
        at.home.project.effort.spend()
        handler = self._kinds.get(type(node))
        if handler is None or self._depth > _DEEPEST:
            return UNKNOWN
        self._depth += 1
        try:
            return handler(node, at, self)
        finally:
            self._depth -= 1

    def values(self, nodes: Iterable[ast.expr], at: Position) -> list[Any] | None:
        """What several are worth; None where one is not known."""
        values = [self.value(node, at) for node in nodes]
        return None if any(value is UNKNOWN for value in values) else values

    def reaches(self, at: Position, seen_from: Position | None = None) -> bool | None:
        """Whether a position is reached, given that `seen_from` is; None where that is not known."""
        return self._reaches(self, at, seen_from)


def _display(node: ast.Tuple | ast.List | ast.Set, at: Position, run: Run) -> object:
    values = run.values(node.elts, at)
    made = {ast.Tuple: tuple, ast.List: list, ast.Set: frozenset}[type(node)]
    return UNKNOWN if values is None else tried(made, values)


def _unary_op(node: ast.UnaryOp, at: Position, run: Run) -> object:
    value = run.value(node.operand, at)
    if isinstance(node.op, ast.Not):
        truth = as_bool(value)
        return UNKNOWN if truth is None else not truth
    return tried(operator.neg, value) if isinstance(node.op, ast.USub) else UNKNOWN


def _bool_op(node: ast.BoolOp, at: Position, run: Run) -> object:
    ends = isinstance(node.op, ast.Or)  # the truth value that ends the chain
    known = True
    value: object = UNKNOWN
    for part in node.values:
        value = run.value(part, at)
        truth = as_bool(value)
        if truth is ends:
            return value if known else ends
        known = known and truth is not None
    return value if known else UNKNOWN


def _if_exp(node: ast.IfExp, at: Position, run: Run) -> object:
    truth = run.truth(node.test, at)
    if truth is not None:
        return run.value(node.body if truth else node.orelse, at)
    return same([run.value(node.body, at), run.value(node.orelse, at)])


def _bin_op(node: ast.BinOp, at: Position, run: Run) -> object:
    left, right = run.value(node.left, at), run.value(node.right, at)
    if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, str | int | tuple):
        return tried(operator.add, left, right)
    return UNKNOWN


def _compare(node: ast.Compare, at: Position, run: Run) -> object:
    left = run.value(node.left, at)
    known = True
    for symbol, comparator in zip(node.ops, node.comparators, strict=True):
        right = run.value(comparator, at)
        truth = _compared(symbol, left, right, run)
        if truth is False:
            return False
        known = known and truth is True
        left = right
    return True if known else UNKNOWN


def _compared(symbol: ast.cmpop, left: object, right: object, run: Run) -> bool | None:
    """Whether a comparison holds; None where that is not known."""
    if isinstance(right, ParameterNames) and left not in right and run.release.is_later:
        return None  # a release to come may have parameters that are not known yet
    equality = isinstance(symbol, ast.Is | ast.IsNot | ast.Eq | ast.NotEq)
    if equality and (left is ABSENT or right is ABSENT):
        other = right if left is ABSENT else left
        return (other is None or other is ABSENT) is isinstance(symbol, ast.Is | ast.Eq)
    if left is UNKNOWN or right is UNKNOWN:
        return None
    if equality and (left is None or right is None):
        other = right if left is None else left
        equal = (False if as_bool(other) else None) if isinstance(other, Ref) else other is None
        return equal if equal is None or isinstance(symbol, ast.Is | ast.Eq) else not equal
    if isinstance(left, Ref) or isinstance(right, Ref):
        return None
    answer = tried(_COMPARISONS[type(symbol)], left, right)
    return answer if isinstance(answer, bool) else None


def _subscript(node: ast.Subscript, at: Position, run: Run) -> object:
    value = run.value(node.value, at)
    if isinstance(node.slice, ast.Slice):
        ends = [run.value(end, at) if end is not None else None for end in (node.slice.lower, node.slice.upper)]
        if node.slice.step is not None or UNKNOWN in ends:
            return UNKNOWN
        return tried(operator.getitem, value, slice(*ends))
    index = run.value(node.slice, at)
    return tried(operator.getitem, value, index) if isinstance(value, str | tuple | list | dict) else UNKNOWN


def _generator_exp(node: ast.GeneratorExp | ast.ListComp, at: Position, run: Run) -> object:
    first = node.generators[0]
    values = run.value(first.iter, at)
    if len(node.generators) > 1 or first.ifs or not isinstance(first.target, ast.Name):
        return UNKNOWN
    if not isinstance(values, str | tuple | list) or len(values) > LONGEST:
        return UNKNOWN
    name = first.target.id
    results = [run.value(node.elt, at._replace(given={**(at.given or {}), name: value})) for value in values]
    return UNKNOWN if any(value is UNKNOWN for value in results) else results


LITERALS: dict[type, Handler] = {
    ast.Constant: lambda node, _, __: node.value,
    ast.Tuple: _display,
    ast.List: _display,
    ast.Set: _display,
    ast.UnaryOp: _unary_op,
    ast.BoolOp: _bool_op,
    ast.IfExp: _if_exp,
    ast.NamedExpr: lambda node, at, run: run.value(node.value, at),
    ast.BinOp: _bin_op,
    ast.Compare: _compare,
    ast.Subscript: _subscript,
    ast.GeneratorExp: _generator_exp,
    ast.ListComp: _generator_exp,
}


def as_bool(value: object) -> bool | None:
    """The truth of a value; None where that is not known."""
    if value is UNKNOWN:
        return None
    if isinstance(value, Ref):  # modules, classes and functions are true; an object may say otherwise
        if value.kind == "external" and value.name.startswith(SHIMS):  # modules and functions too
            return True
        return True if value.kind in {"module", "class", "function", "local-function", "local-module"} else None
    return bool(value)


def same(values: list[object]) -> object:
    """The one value that all of these are."""
    first = values[0]
    return first if all(type(value) is type(first) and value == first for value in values[1:]) else UNKNOWN


def tried(function: Callable[..., Any], *arguments: Any) -> object:
    """What a function gives for known values, `UNKNOWN` where it fails."""
    if any(argument is UNKNOWN or isinstance(argument, Ref) for argument in arguments):
        return UNKNOWN
    try:
        return function(*arguments)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError):
        return UNKNOWN
