"""What an expression is: the modules, classes, functions, objects and texts it may stand for, across files.

What is not known is empty, never a guess. Everything is asked of `Names.of`; what was found is kept by node.
"""

from __future__ import annotations

import ast
from typing import Any

from mcore_unpatch.code.conditions import Tests, reaching, tests
from mcore_unpatch.code.expressions import EXPRESSIONS
from mcore_unpatch.code.index import Index
from mcore_unpatch.code.members import member, project
from mcore_unpatch.code.module import (
    Binding,
    BindingKind,
    Scope,
    inner_scope,
    is_method,
    parent_scope_node,
    qualified,
    scope_of,
)
from mcore_unpatch.code.syntax import argument, decorated_as, default_of, function_of, last_name, spelled, walk
from mcore_unpatch.code.values import Frame, Kind, Value, Values, instances
from mcore_unpatch.library.interface import Library

_MOST_VALUES = 100  # of one expression
_DEEPEST = 40  # evaluations within one another
_CALLERS = 3  # of callers, that are asked for a parameter
_MOST_STEPS = 4_000  # of one question
_LONGEST_ANNOTATION = 200
_MANY = ("list", "List", "Sequence", "Iterable", "Iterator", "tuple", "Tuple", "set", "Set", "Generator")
_EITHER = ("Optional", "Union", "Final", "Annotated", "ClassVar")
_PLAIN = ("builtins.", "typing.", "torch.Tensor", "collections.")


class Names:
    """Evaluates expressions of a repository against the repository and one library."""

    def __init__(self, index: Index, library: Library) -> None:
        self.index, self.library = index, library
        self.bound: dict[Any, Values] = {}  # functions that became methods: what their first parameter is
        self._memo: dict[ast.AST, Values] = {}
        self._callers: dict[Any, list[ast.Call]] = {}
        self.active: dict[object, int] = {}  # the questions that are being answered, by how deep they are
        self._lowest = _DEEPEST  # the question among these that an answer had to leave out
        self._steps = 0
        self._asked_classes: dict[str, set[str]] = {}  # by path
        self._tests: dict[ast.AST, Tests] = {}
        self._settled: dict[ast.AST, Values] = {}
        self._kept: tuple[dict[Any, Any], ...] = (self._memo, self._callers, self._settled, self._tests)

    def of(self, node: ast.AST | None, frame: Frame | None = None) -> Values:
        """What an expression may be; nothing where that is not known."""
        if node is None:
            return ()
        if frame is None and (known := self._memo.get(node)) is not None:
            return known
        visit = EXPRESSIONS.get(node.__class__)
        if visit is None:
            return ()
        level = len(self.active)
        if node in self.active or level > _DEEPEST or self._steps > _MOST_STEPS:
            # An answer that leaves something out is complete only for the question that was asked first.
            self._lowest = min(self._lowest, self.active.get(node, 0))
            return ()
        outer, self._lowest = self._lowest, _DEEPEST
        self.active[node] = level
        self._steps += 1
        try:
            found = tuple(dict.fromkeys(visit(self, node, frame)))[:_MOST_VALUES]
        finally:
            del self.active[node]
        if frame is None and (self._lowest >= level or level == 0):
            self._memo[node] = found
        self._lowest = min(outer, self._lowest) if self._lowest < level else outer
        if level == 0:
            self._steps = 0
        return found

    def known(self) -> tuple[int, ...]:
        """How much is known, for `forget_since`."""
        return tuple(map(len, self._kept))

    def forget_since(self, known: tuple[int, ...]) -> None:
        """Forget what was found since then: the file that it was asked for is let go."""
        for kept, length in zip(self._kept, known, strict=True):
            while len(kept) > length:
                kept.popitem()

    def forget(self) -> None:
        """Forget what was found: more is known now."""
        for kept in self._kept:
            kept.clear()

    def settled(self, values: Values) -> Values:
        """The same, with parameters replaced by what the repository's calls give for them."""
        return self._settle(values, _CALLERS)

    def _settle(self, values: Values, depth: int) -> Values:
        if not any(value.kind == Kind.PARAMETER for value in values):
            return values
        found: list[Value] = []
        for value in values:
            if value.kind != Kind.PARAMETER:
                found.append(value)
                continue
            found += self._given(value.node, depth)
        return tuple(dict.fromkeys(found))[:_MOST_VALUES]

    def _given(self, arg: ast.arg, depth: int) -> Values:
        """What the callers give for a parameter."""
        if arg in self._settled:
            return self._settled[arg]
        found: list[Value] = []
        level, outer = len(self.active), self._lowest
        self._lowest = _DEEPEST
        for call in self.callers(function_of(arg)) if depth else ():
            found += self._settle(self.of(self.argument(arg, call)), depth - 1)
        answer = tuple(dict.fromkeys(found))[:_MOST_VALUES]
        if depth == _CALLERS and self._lowest >= level:
            self._settled[arg] = answer
        self._lowest = min(outer, self._lowest)
        return answer

    def callers(self, function: Any) -> list[ast.Call]:
        """The calls of a function of the repository, where they can be told."""
        if function not in self._callers:
            self._callers[function] = []  # for who asks meanwhile
            self._callers[function] = self._find_callers(function)
        return self._callers[function]

    def _find_callers(self, function: Any) -> list[ast.Call]:
        name, wanted = getattr(function, "name", ""), function
        if name == "__init__" and is_method(function):
            wanted = parent_scope_node(function)
            name = getattr(wanted, "name", "")
        if not name or name.startswith("__"):
            return []
        module = scope_of(function).module
        calls = self.index.calls(name, module.path, module.name.rpartition(".")[2])
        return [call for call in calls if any(value.node is wanted for value in self.of(call.func))]

    def argument(self, arg: ast.arg, call: ast.Call) -> ast.expr | None:
        """What a call gives for a parameter; its default where it gives nothing."""
        function = function_of(arg)
        return argument(arg, call, is_method(function) and not decorated_as(function, "staticmethod"))

    def module(self, dotted: str, near: str) -> Value:
        """The module of a name: the library's, the repository's, or another one's."""
        if self.library.is_module(dotted):
            return Value(Kind.MODULE, dotted)
        if self.library.within(dotted) and (symbol := self.library.symbol(dotted)) is not None:
            return Value(Kind(symbol.kind.value), symbol.name) if symbol.kind == "module" else Value(Kind.OTHER, dotted)
        found = self.index.find(dotted, near)
        if found is None or (found.path == near and dotted != found.name):
            return Value(Kind.OTHER, dotted)
        return Value(Kind.MODULE, found.name, found.tree)

    # -- names -------------------------------------------------------------------------------------------------------

    def name(self, node: ast.Name, frame: Frame | None) -> Values:
        """What a name stands for where it is read."""
        narrowed = self.narrowed(node, node.id)
        return narrowed or self.lookup(node.id, node, scope_of(node), frame)

    def lookup(self, name: str, node: ast.AST, first: Scope, frame: Frame | None = None) -> Values:
        """What a name stands for at a node."""
        scope: Scope | None = first
        while scope is not None:
            home = scope.elsewhere.get(name, scope)
            if frame and (home, name) in frame:
                return frame[home, name]
            if name in home.names and (not home.is_class or home is first):
                found: list[Value] = []
                for binding in reaching(home.names[name], node, home is first):
                    found += self.bound_to(binding, home, frame)
                return tuple(found)
            if home.parent is None and "*" in home.names:
                for binding in home.names["*"]:
                    starred = member(self, self.imported_from(binding, home), name)
                    if starred and starred[0].kind != Kind.OTHER:
                        return starred
            scope = scope.parent
        return (Value(Kind.OTHER, f"builtins.{name}"),)

    def imported_from(self, binding: Binding, scope: Scope) -> Value:
        """The module that a `from ... import` names."""
        module = scope.module
        return self.module(module.absolute(binding.node.module, binding.node.level), module.path)

    def bound_to(self, binding: Binding, scope: Scope, frame: Frame | None) -> Values:
        """What one binding gives."""
        kind, node, value, path = binding
        if scope.parent is None:
            frame = None  # nothing of a call reaches there
        if kind == BindingKind.IMPORT:
            return (self.module(value.name if value.asname else value.name.partition(".")[0], scope.module.path),)
        if kind == BindingKind.FROM:
            return member(self, self.imported_from(binding, scope), value.name)
        if kind in (BindingKind.DEFINITION, BindingKind.CLASS):
            made = Kind.FUNCTION if kind == BindingKind.DEFINITION else Kind.CLASS
            return (Value(made, qualified(node), node),)
        if kind == BindingKind.PARAMETER:
            return self._parameter(node)
        if isinstance(node, ast.AnnAssign) and (found := self.annotated(node.annotation)):
            return found
        return () if isinstance(node, ast.AugAssign) else project(self, self.of(value, frame), path, frame)

    def _parameter(self, arg: ast.arg) -> Values:
        function = function_of(arg)
        args = function.args.posonlyargs + function.args.args
        if args and args[0] is arg:
            if (around := inner_scope(function).self_class(arg.arg)) is not None:
                return (Value(Kind.INSTANCE, qualified(around.node), around.node),)
            if is_method(function) and decorated_as(function, "classmethod"):
                owner = parent_scope_node(function)
                return (Value(Kind.CLASS, qualified(owner), owner),)
            if function in self.bound:
                return self.bound[function]
        if arg is function.args.vararg or arg is function.args.kwarg:
            return ()
        found = self.annotated(arg.annotation)
        if not found:
            defaults = self.of(default_of(arg))
            found = tuple(one for one in defaults if one.kind in (Kind.CLASS, Kind.MODULE, Kind.FUNCTION))
        return found or (Value(Kind.PARAMETER, arg.arg, arg),)

    def annotated(self, node: ast.AST | None) -> Values:
        """The objects an annotation allows, where it names classes of the repository, the library or another one."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self._annotated_by_text(node)
        if isinstance(node, ast.BinOp):
            return self.annotated(node.left) + self.annotated(node.right)
        if isinstance(node, ast.Subscript):
            outer = last_name(node.value)
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if outer in _EITHER:
                return tuple(value for part in parts for value in self.annotated(part))
            if outer in ("type", "Type"):
                return tuple(Value(Kind.CLASS, one.name, one.node) for one in self.annotated(node.slice))
            if outer in _MANY:
                return (Value(Kind.ITEMS, "", node),)
            return ()
        if node is None or isinstance(node, ast.Constant):
            return ()
        known = self.of(node)
        found = instances(known)
        foreign = (one for one in known if one.kind == Kind.OTHER and not one.name.startswith(_PLAIN))
        return found or tuple(Value(Kind.INSTANCE, one.name) for one in foreign if not one.name.endswith(".Any"))

    def _annotated_by_text(self, node: ast.Constant) -> Values:
        text = str(node.value).strip()
        if len(text) > _LONGEST_ANNOTATION or not hasattr(node, "_parent"):
            return ()
        try:
            parsed = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ()
        while isinstance(parsed, ast.Subscript) and last_name(parsed.value) in _EITHER:
            parsed = parsed.slice
        dotted = spelled(parsed)
        found = self.lookup(dotted.partition(".")[0], node, scope_of(node)) if dotted else ()
        for part in dotted.split(".")[1:]:
            found = tuple(each for value in found for each in member(self, value, part))
        return instances(found)

    def narrowed(self, node: ast.AST, key: str) -> Values:
        """The classes that `isinstance` leaves of a path of names at a node."""
        module = scope_of(node).module
        if module.path not in self._asked_classes:
            asked = [call for call in module.calls if last_name(call.func) == "isinstance" and len(call.args) == 2]
            self._asked_classes[module.path] = {spelled(call.args[0]) for call in asked}
        if not key or key not in self._asked_classes[module.path]:
            return ()
        for test, truth in tests(node, self._tests):
            if truth and isinstance(test, ast.Call) and last_name(test.func) == "isinstance" and len(test.args) == 2:
                if spelled(test.args[0]) == key and not any(node is inner for inner in walk(test)):
                    named = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
                    if found := tuple(value for each in named for value in instances(self.of(each))):
                        return found
        return ()

    # -- classes -----------------------------------------------------------------------------------------------------

    def lineage(self, value: Value) -> list[Value]:
        """A class of the repository or the library, and its bases."""
        order: list[Value] = []
        todo = [Value(Kind.CLASS, value.name, value.node)]
        while todo and len(order) < _DEEPEST:
            each = todo.pop(0)
            if each in order:
                continue
            order.append(each)
            if each.node is not None:
                bases = (one for base in each.node.bases for one in self.of(base))
                todo += [one._replace(owner=None) for one in bases if one.kind in (Kind.CLASS, Kind.OTHER)]
            elif each.kind == Kind.CLASS and self.library.within(each.name):
                rest = self.library.lineage(each.name)[1:]
                todo += [Value(Kind.CLASS if self.library.within(base) else Kind.OTHER, base) for base in rest]
        return order

    def of_library(self, value: Value) -> list[str]:
        """The library's classes among a class or object's bases, itself included."""
        if value.kind not in (Kind.CLASS, Kind.INSTANCE):
            return []
        return [one.name for one in self.lineage(value) if one.node is None and self.library.within(one.name)]
