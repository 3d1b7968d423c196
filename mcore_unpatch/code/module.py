"""A Python file: one parse, one walk. Nodes learn their parents; bindings, stores and calls are listed."""

from __future__ import annotations

import ast
import warnings
from enum import StrEnum
from typing import Any, NamedTuple

from mcore_unpatch.code.syntax import CHILDREN, COMPREHENSIONS, FUNCTIONS, NAMED_FUNCTIONS, parameters

Step = int | str
ELEMENT, ENTERED, REST = "*", "with", "rest"  # of a loop, of a `with`, of a starred name


class BindingKind(StrEnum):
    """How a name gets its value."""

    IMPORT = "import"
    FROM = "from"
    DEFINITION = "definition"
    CLASS = "class"
    ASSIGNMENT = "assignment"
    PARAMETER = "parameter"


class Binding(NamedTuple):
    """One way a name gets its value; `path`: which part of `value`, 0 of a pair, an element of what is looped over."""

    kind: BindingKind
    node: Any  # the statement, definition or parameter
    value: Any = None
    path: tuple[Step, ...] = ()


class Store(NamedTuple):
    """`target = value`, where the target is an attribute or an item."""

    target: ast.Attribute | ast.Subscript
    value: ast.expr | None
    path: tuple[Step, ...]


class Scope:
    """A module, class, function or comprehension, with what its names are bound to, in the order of the text."""

    __slots__ = ("attributes", "elsewhere", "module", "names", "node", "parent")

    def __init__(self, module: Module, node: Any, parent: Scope | None) -> None:
        self.module, self.node, self.parent = module, node, parent
        self.names: dict[str, list[Binding]] = {}
        self.elsewhere: dict[str, Scope] = {}  # by `global` and `nonlocal`
        self.attributes: dict[str, list[Store]] = {}  # of a class: what its methods set on `self`

    def bind(self, name: str, binding: Binding) -> None:
        """Note a binding where the name lives."""
        self.elsewhere.get(name, self).names.setdefault(name, []).append(binding)

    @property
    def is_class(self) -> bool:
        """Whether it is the body of a class."""
        return isinstance(self.node, ast.ClassDef)

    def function(self) -> Scope | None:
        """The function around a place, through comprehensions."""
        scope: Scope | None = self
        while scope is not None and not isinstance(scope.node, FUNCTIONS):
            scope = scope.parent if isinstance(scope.node, COMPREHENSIONS) else None
        return scope

    def outermost_function(self) -> Scope | None:
        """The outermost function around a place, none in a class."""
        found, scope = None, self
        while scope.parent is not None:
            if scope.is_class:
                return None
            found = scope if isinstance(scope.node, NAMED_FUNCTIONS) else found
            scope = scope.parent
        return found

    def class_around(self) -> Scope | None:
        """The class whose method a place is in, at any depth."""
        scope: Scope | None = self
        while scope is not None and not scope.is_class:
            scope = scope.parent
        return scope

    def home_of(self, name: str) -> Scope | None:
        """The scope that a name is looked up in from here; none where nobody binds it."""
        scope: Scope | None = self
        while scope is not None:
            home = scope.elsewhere.get(name, scope)
            if name in home.names and (home is self or not home.is_class):
                return home
            scope = scope.parent
        return None

    def bindings(self, name: str) -> list[Binding]:
        """What a name is bound to, seen from here."""
        home = self.home_of(name)
        return home.names[name] if home is not None else []

    def self_class(self, name: str) -> Scope | None:
        """The class whose instance goes by this name here: the first parameter of the method around the place."""
        home = self.home_of(name)
        if home is None or not isinstance(home.node, NAMED_FUNCTIONS) or not (home.parent and home.parent.is_class):
            return None
        args = home.node.args.posonlyargs + home.node.args.args
        kinds = {getattr(decorator, "id", "") for decorator in home.node.decorator_list}
        if not args or args[0].arg != name or kinds & {"staticmethod", "classmethod"}:
            return None
        return home.parent


class Module:
    """A parsed file under its dotted name. Raises SyntaxError, ValueError or RecursionError for what is no Python 3."""

    __slots__ = ("calls", "is_package", "name", "path", "rows", "scope", "stores", "tree")

    def __init__(self, path: str, name: str, source: bytes) -> None:
        self.path, self.name = path, name
        self.is_package = path.endswith("__init__.py")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # invalid escapes are not our business
            self.tree = ast.parse(source)
        self.stores: list[Store] = []
        self.calls: list[ast.Call] = []
        self.rows: list[ast.Dict | ast.Tuple | ast.List] = []  # displays that begin with a text
        self.scope = Scope(self, self.tree, None)
        self.tree._parent, self.tree._inner = None, self.scope  # type: ignore[attr-defined]
        self._walk()

    def absolute(self, module: str | None, level: int) -> str:
        """`from ..a import b` as the dotted name of `a`."""
        if not level:
            return module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - level + self.is_package]
        return ".".join([*parts, module] if module else parts)

    def _walk(self) -> None:
        """Visit every node in the order of the text, with a stack of our own: a tree may be deep."""
        stack: list[tuple[Any, Any, Scope]] = [(child, self.tree, self.scope) for child in reversed(self.tree.body)]
        while stack:
            node, parent, scope = stack.pop()
            node._parent = parent
            visit = _VISITORS.get(node.__class__)
            inner = scope if visit is None else visit(self, node, scope)
            outside = _OUTSIDE.get(node.__class__, ())
            for field in reversed(CHILDREN[node.__class__]):
                child = getattr(node, field)
                where = scope if field in outside else inner
                if child.__class__ is list:
                    stack.extend([(item, node, where) for item in reversed(child) if item is not None])
                elif child.__class__ in _LEAVES:  # half of all nodes
                    child._parent = node  # type: ignore[union-attr]
                elif child is not None:
                    stack.append((child, node, where))

    def _call(self, node: ast.Call, scope: Scope) -> Scope:
        self.calls.append(node)
        return scope

    def _display(self, node: Any, scope: Scope) -> Scope:
        first = node.keys[0] if isinstance(node, ast.Dict) and node.keys else None
        if not isinstance(node, ast.Dict) and len(node.elts) > 1:
            first = node.elts[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            self.rows.append(node)
        return scope

    def _function(self, node: Any, scope: Scope) -> Scope:
        if not isinstance(node, ast.Lambda):
            scope.bind(node.name, Binding(BindingKind.DEFINITION, node))
        node._inner = inner = Scope(self, node, scope)
        for arg in parameters(node):
            inner.bind(arg.arg, Binding(BindingKind.PARAMETER, arg))
            arg._function = node  # type: ignore[attr-defined]
        return inner

    def _class(self, node: Any, scope: Scope) -> Scope:
        scope.bind(node.name, Binding(BindingKind.CLASS, node))
        node._inner = inner = Scope(self, node, scope)
        return inner

    def _comprehension(self, node: Any, scope: Scope) -> Scope:
        node._inner = inner = Scope(self, node, scope)
        for part in node.generators:
            self._bind(part.target, part.iter, (ELEMENT,), node, inner)
        return inner

    def _assign(self, node: ast.Assign, scope: Scope) -> Scope:
        for target in node.targets:
            self._bind(target, node.value, (), node, scope)
        return scope

    def _assign_one(self, node: Any, scope: Scope) -> Scope:
        self._bind(node.target, node.value, (), node, scope)
        return scope

    def _named(self, node: Any, scope: Scope) -> Scope:
        home = scope
        while isinstance(home.node, COMPREHENSIONS) and home.parent is not None:
            home = home.parent
        self._bind(node.target, node.value, (), node, home)
        return scope

    def _loop(self, node: Any, scope: Scope) -> Scope:
        self._bind(node.target, node.iter, (ELEMENT,), node, scope)
        return scope

    def _with(self, node: Any, scope: Scope) -> Scope:
        if node.optional_vars is not None:
            self._bind(node.optional_vars, node.context_expr, (ENTERED,), node._parent, scope)
        return scope

    def _import(self, node: ast.Import, scope: Scope) -> Scope:
        for alias in node.names:
            scope.bind(alias.asname or alias.name.partition(".")[0], Binding(BindingKind.IMPORT, node, alias))
        return scope

    def _import_from(self, node: ast.ImportFrom, scope: Scope) -> Scope:
        for alias in node.names:
            scope.bind(alias.asname or alias.name, Binding(BindingKind.FROM, node, alias))
        return scope

    def _elsewhere(self, node: Any, scope: Scope) -> Scope:
        for name in node.names:
            around = scope.parent if isinstance(node, ast.Nonlocal) else None
            home = around.home_of(name) if around is not None else None
            if around is not None and (home is None or home.parent is None):
                home = around.function()  # it is bound further below
            scope.elsewhere[name] = home or self.scope
        return scope

    def _bind(self, target: Any, value: Any, path: tuple[Step, ...], node: Any, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.bind(target.id, Binding(BindingKind.ASSIGNMENT, node, value, path))
        elif isinstance(target, ast.Starred):
            self._bind(target.value, value, (*path, REST), node, scope)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for number, part in enumerate(target.elts):
                self._bind(part, value, (*path, number), node, scope)
        elif isinstance(target, (ast.Attribute, ast.Subscript)):
            store = Store(target, value, path)
            self.stores.append(store)
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                owner = scope.self_class(target.value.id)
                if owner is not None:
                    owner.attributes.setdefault(target.attr, []).append(store)


def inner_scope(node: Any) -> Scope:
    """The scope that a module, class, function or comprehension opens."""
    return node._inner  # type: ignore[no-any-return]


def scope_of(node: ast.AST) -> Scope:
    """The scope a node is evaluated in: decorators, defaults and bases belong to the scope around a definition."""
    child: Any = node
    while (parent := child._parent) is not None:
        inner = parent.__dict__.get("_inner")
        if inner is not None and (not isinstance(parent, (*NAMED_FUNCTIONS, ast.ClassDef)) or child in parent.body):
            return inner  # type: ignore[no-any-return]
        child = parent
    return child._inner  # type: ignore[no-any-return]


def is_method(function: ast.AST) -> bool:
    """Whether a function stands in the body of a class."""
    return isinstance(function, NAMED_FUNCTIONS) and isinstance(parent_scope_node(function), ast.ClassDef)


def parent_scope_node(node: ast.AST) -> ast.AST:
    """The module, class or function whose scope a node stands in."""
    return scope_of(node).node  # type: ignore[no-any-return]


def qualified(node: Any) -> str:
    """The dotted name of a definition."""
    parts = [getattr(node, "name", "<lambda>")]
    scope = scope_of(node)
    while scope.parent is not None:
        parts.append(getattr(scope.node, "name", "<expression>"))
        scope = scope.parent
    return ".".join([scope.module.name, *reversed(parts)])


_OUTSIDE: dict[type, tuple[str, ...]] = {
    **dict.fromkeys(NAMED_FUNCTIONS, ("decorator_list", "args", "returns")),
    ast.Lambda: ("args",),
    ast.ClassDef: ("decorator_list", "bases", "keywords"),
}
_LEAVES = (ast.Name, ast.Constant)
_VISITORS: dict[type, Any] = {
    ast.Call: Module._call,
    **dict.fromkeys((ast.Tuple, ast.List, ast.Dict), Module._display),
    **dict.fromkeys(FUNCTIONS, Module._function),
    ast.ClassDef: Module._class,
    **dict.fromkeys(COMPREHENSIONS, Module._comprehension),
    ast.Assign: Module._assign,
    **dict.fromkeys((ast.AnnAssign, ast.AugAssign), Module._assign_one),
    ast.NamedExpr: Module._named,
    **dict.fromkeys((ast.For, ast.AsyncFor), Module._loop),
    ast.withitem: Module._with,
    ast.Import: Module._import,
    ast.ImportFrom: Module._import_from,
    **dict.fromkeys((ast.Global, ast.Nonlocal), Module._elsewhere),
}
