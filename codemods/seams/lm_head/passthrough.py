"""What a replacement of `output_layer.forward` does: hand its input through, perhaps at times, perhaps with a note."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from mcore_unpatch.codemods.source import Function
from mcore_unpatch.codemods.syntax import body_of, is_name, is_value, names_in, parameters

WEIGHT = "weight"  # Megatron passes it by this name


@dataclass(frozen=True)
class Passthrough:
    """A function that returns `input, None` and does nothing else but keep the weight in `kept_in`."""

    function: ast.FunctionDef
    kept_in: tuple[ast.expr, ...] = ()  # attributes and items that the weight is written to
    condition: ast.expr | None = None  # hands through only where this is true,
    negated: bool = False  # or false
    original: ast.expr | None = None  # what it calls otherwise


def read_passthrough(function: Function, bound: bool, layer: str) -> Passthrough | None:
    """The replacement as a passthrough; None if it is none. `layer` is what the code around it calls the layer."""
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return None
    return _PassthroughReader(function, bound, layer).read()


class _PassthroughReader:
    """Reads bodies that our processor can replace."""

    def __init__(self, function: ast.FunctionDef, bound: bool, layer: str) -> None:
        names, spec = parameters(function), function.args
        self.function = function
        self.layers = {layer, names[0]} if bound and names else {layer}
        self.input = names[bound] if len(names) > bound else ""
        self.rest = spec.kwarg.arg if spec.kwarg else ""
        self.weights = {WEIGHT} if WEIGHT in names else set()
        self.own = {*names, *(arg.arg for arg in (spec.vararg, spec.kwarg) if arg is not None)}

    def read(self) -> Passthrough | None:
        body = body_of(self.function)
        if not self.input or not body:
            return None
        kept = self._branch(body)
        if kept is not None:
            return Passthrough(self.function, kept)
        if not isinstance(body[0], ast.If):
            return None
        test, then, otherwise = body[0].test, body[0].body, body[0].orelse or body[1:]
        if (body[0].orelse and len(body) > 1) or self.own & names_in(test) or not _is_simple(test):
            return None
        for through, back, negated in ((then, otherwise, False), (otherwise, then, True)):
            kept, original = self._branch(through), self._hands_over(back)
            if kept is not None and original is not None:
                return Passthrough(self.function, kept, test, negated, original)
        return None

    def _branch(self, body: Sequence[ast.stmt]) -> tuple[ast.expr, ...] | None:
        """Where a body keeps the weight before it returns `input, None`; None if it does anything else."""
        if not body:  # an `if` without an `else`, and nothing behind it
            return None
        kept: list[ast.expr] = []
        *before, last = body
        for statement in before:
            targets = self._keeps(statement)
            if targets is None:
                return None
            kept += targets
        if not isinstance(last, ast.Return) or not _is_pair_with_none(last.value):
            return None
        value = last.value.elts[0]  # type: ignore[union-attr]
        return tuple(kept) if is_name(value, self.input) else None

    def _keeps(self, statement: ast.stmt) -> list[ast.expr] | None:
        """The places one statement writes the weight to; none for what only tidies up; None for anything else."""
        if isinstance(statement, ast.Delete):
            return [] if names_in(statement) <= self.own else None
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and self._is_weight(statement.value):
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                self.weights.add(target.id)
                self.own.add(target.id)
                return []
            return [target] if _is_place(target) and not (self.own | {WEIGHT}) & names_in(target) else None
        if isinstance(statement, ast.If) and self._asks_for_weight(statement.test):
            return self._keeps_if_given(statement)
        return None

    def _keeps_if_given(self, statement: ast.If) -> list[ast.expr] | None:
        """`if weight is not None: kept = weight`, perhaps with the layer's own otherwise, or the other way round."""
        given, missing = statement.body, statement.orelse
        if isinstance(statement.test.ops[0], ast.Is):  # type: ignore[attr-defined]
            given, missing = missing, given
        places = [self._keeps(one) for one in (*given, *missing)]
        if None in places or len(given) > 1 or len(missing) > 1:
            return None
        found = [place for targets in places if targets is not None for place in targets]
        if not found:
            return []  # `if weight is None: weight = layer.weight`
        return found[:1] if given and len({ast.unparse(place) for place in found}) == 1 else None

    def _is_weight(self, value: ast.expr) -> bool:
        if isinstance(value, ast.IfExp):
            return self._asks_for_weight(value.test) and self._is_weight(value.body) and self._is_weight(value.orelse)
        if isinstance(value, ast.Name):
            return value.id in self.weights
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "get":
            first = value.args[0] if value.args else None
            named = isinstance(first, ast.Constant) and first.value == WEIGHT
            return named and self.rest != "" and is_name(value.func.value, self.rest)
        own = isinstance(value, ast.Attribute) and value.attr == WEIGHT
        return own and ast.unparse(value.value) in self.layers  # type: ignore[attr-defined]

    def _hands_over(self, body: Sequence[ast.stmt]) -> ast.expr | None:
        """The function of `return function(input, weight=weight, ...)`: all that it is given, as it is."""
        statement = body[0] if len(body) == 1 else None
        call = statement.value if isinstance(statement, ast.Return) else None
        if not isinstance(call, ast.Call) or not call.args or ast.unparse(call.args[0]) != self.input:
            return None
        rest = [argument.value if isinstance(argument, ast.Starred) else argument for argument in call.args[1:]]
        named = [keyword for keyword in call.keywords if keyword.arg is not None]
        if not all(isinstance(value, ast.Name) and value.id in self.own for value in rest):
            return None
        if not all(ast.unparse(keyword.value) == keyword.arg for keyword in named):
            return None
        spread = [keyword.value for keyword in call.keywords if keyword.arg is None]
        return call.func if all(is_name(value, self.rest) for value in spread) else None

    def _asks_for_weight(self, test: ast.expr) -> bool:
        """`weight is None`, `weight is not None`."""
        return (
            isinstance(test, ast.Compare)
            and isinstance(test.left, ast.Name)
            and test.left.id in self.weights
            and isinstance(test.ops[0], ast.Is | ast.IsNot)
            and is_value(test.comparators[0], None)
        )


def _is_simple(test: ast.expr) -> bool:
    """Whether a condition can be asked again elsewhere, and be read on one line."""
    one_line = test.lineno == test.end_lineno
    return one_line and not any(isinstance(node, ast.NamedExpr | ast.Await) for node in ast.walk(test))


def _is_place(target: ast.expr) -> bool:
    """`name.attribute` or `name["item"]`, which any code that sees the name can write to."""
    if isinstance(target, ast.Attribute):
        return isinstance(target.value, ast.Name)
    constant = isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant)
    return constant and isinstance(target.value, ast.Name)  # type: ignore[attr-defined]


def _is_pair_with_none(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Tuple) and len(value.elts) == 2 and is_value(value.elts[1], None)
