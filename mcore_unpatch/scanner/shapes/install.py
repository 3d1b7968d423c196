"""One patch as every shape gives it, before it is judged, and what is put in place: a function, a method, a module."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import api
from mcore_unpatch.megatron.layout import EXTERNAL_METHODS
from mcore_unpatch.scanner.names.resolver import Position, Resolver
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Scope, Site, last_name

DATA = (ast.Constant, ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.DictComp, ast.JoinedStr)
_DEEPEST = 4
_WRAPPERS = {"MethodType", "partial", "staticmethod", "classmethod", "property", "partialmethod", "compile"}
_TYPES = {"set", "dict", "list", "object"}
Found = tuple[FunctionNode | ast.Lambda | None, Resolver]


@dataclass(slots=True, eq=False)
class Install:
    """One patch before it is judged: where it stands, what it replaces, and with what."""

    site: Site
    node: ast.AST
    target: str
    shape: str
    sure: bool
    why: str
    value: ast.expr | None = None
    owner: str = ""  # the class or module that is changed
    attribute: str = ""
    base: ast.expr | None = None
    adds: bool = False  # a name Megatron does not have is added, nothing is replaced
    mock: bool = False  # a test's mock: a family of its own
    possible: bool = False  # an object of unknown type, told by the method's name alone
    on_instance: bool = False  # of one object alone
    patches_more: bool = False  # the statement patches more modules than this
    named: str = ""  # the dotted name of what takes its place, where a text gives it
    inner: Position | None = None  # within the helper that makes it
    restores: list[Site] = field(default_factory=list)
    judged: tuple[Model, ...] = ()  # the releases it is judged for, once that is known


def parted(target: str) -> tuple[str, str]:
    """The class or module of a dotted name, and what of it."""
    owner, _, attribute = target.rpartition(".")
    return owner, attribute


def core_target(dotted: str) -> str:
    """A dotted string as the definition it names, also `module:name`; a method keeps its name behind its class."""
    dotted = dotted.replace(":", ".")
    owner, _, leaf = dotted.rpartition(".")
    symbol = api.lookup(owner)
    if symbol and symbol.kind in {"class", "module"}:
        return f"{symbol.name}.{leaf}"
    return dotted


def is_bound_method(value: ast.expr) -> bool:
    """`types.MethodType(fn, obj)` or `fn.__get__(obj, cls)`."""
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute) and value.func.attr == "__get__":
        return True
    return last_name(value.func) == "MethodType"


def is_mock_object(value: ast.expr) -> bool:
    """`MagicMock()` and its kin."""
    if not isinstance(value, ast.Call):
        return False
    return last_name(value.func) in {"Mock", "MagicMock", "AsyncMock", "create_autospec"}


def is_callable(site: Site, resolver: Resolver, value: ast.expr) -> bool:
    """Whether a value is plainly a function, a class, or made by wrapping one."""
    if isinstance(value, ast.Lambda) or is_bound_method(value):
        return True
    if isinstance(value, ast.Call):
        name = last_name(value.func)
        if (inner := method_in(value)) is not value and (ref := resolver.at(site).expr(inner)) and ref.is_core:
            return False  # what Megatron has, kept under another name
        made = {"property", "staticmethod", "classmethod", "wraps", "partialmethod", "cached_property"}
        return name in made or is_function(site, resolver, value)
    ref = resolver.at(site).expr(value)
    return ref is not None and (ref.kind == "local-function" or (ref.kind == "class" and ref.home is not None))


def method_in(value: ast.expr) -> ast.expr:
    """`f` in `staticmethod(f)` and `classmethod(f)`; anything else as it is."""
    match value:
        case ast.Call(func=ast.Name(id="staticmethod" | "classmethod"), args=[inner], keywords=[]):
            return inner
    return value


def is_function(site: Site, resolver: Resolver, value: ast.expr) -> bool:
    """Whether a value is plainly a function: one of the repository's, a lambda, or one that either of them makes."""
    if isinstance(value, ast.Lambda):
        return True
    if isinstance(value, ast.Call):
        if isinstance(value.func, ast.Lambda):
            return isinstance(value.func.body, ast.Lambda)
        # Under names that torch does not have, that may be data.
        of_torch = any(getattr(site.target, "attr", "") in names for names in EXTERNAL_METHODS.values())
        made = last_name(value.func) == "partial" or (of_torch and wraps(site.target, value))
        return made or function_in(value, resolver.at(site))[0] is not None
    ref = resolver.at(site).expr(value) if isinstance(value, ast.Name) else None
    return ref is not None and ref.kind == "local-function"


def wraps(target: ast.expr | None, value: ast.Call) -> bool:
    """`x.forward = traced(x.forward)`."""
    said = ast.unparse(target) if isinstance(target, ast.Attribute) else None
    return any(isinstance(argument, ast.Attribute) and ast.unparse(argument) == said for argument in value.args)


def function_in(value: ast.expr | None, at: Position, depth: int = 0) -> Found:
    """The function that an expression stands for, whatever is put around it, or that a function makes for it."""
    inner: list[ast.expr] = []
    match value:
        case ast.Lambda():
            return value, at.home
        case ast.Call(func=ast.Attribute(attr="__get__", value=bound)):
            inner = [bound]
        case ast.Call(func=func, args=[first, *_]) if last_name(func) in _WRAPPERS or isinstance(func, ast.Call):
            inner = [first]  # also wraps(original)(new)
        case ast.IfExp():  # new if recent else original
            inner = [value.body, value.orelse]
        case ast.Call(func=func):
            ref = at.expr(func)
            if ref is not None and ref.kind == "local-function" and ref.home is not None and depth <= _DEEPEST:
                return returned_by(ref.node, ref.home, depth + 1)  # make_forward(original)
        case ast.expr():
            ref = at.expr(value)
            if ref is not None and isinstance(ref.node, FunctionNode):
                return ref.node, ref.home or at.home
    functions = (function_in(node, at, depth + 1) for node in inner if depth <= _DEEPEST)
    return next((pair for pair in functions if pair[0] is not None), (None, at.home))


def returned_by(node: ast.AST | None, home: Resolver, depth: int = 1) -> Found:
    """The function that a factory returns."""
    functions = (function_in(one.value, at, depth) for one, at in home.returns_of(node)) if node is not None else ()
    return next((pair for pair in functions if pair[0] is not None), (None, home))


def is_built(value: ast.expr, scope: Scope) -> bool:
    """A call's result, directly or by a name: what a new module is, and a flag of that name is not."""
    if isinstance(value, ast.Name):
        bindings = [b for home in scope.chain() for b in home.bindings.get(value.id, [])]
        return any(isinstance(binding.node, ast.Call) or binding.kind == "param" for binding in bindings)
    return isinstance(value, ast.Call)


def is_same_object(target: ast.expr | None, value: ast.expr) -> bool:
    """`x.y = x.y.to(...)`: the same module, moved."""
    text = ast.unparse(target) if target is not None else ""
    for _ in range(8):
        if ast.unparse(value) == text:
            return True
        if not isinstance(value, ast.Call | ast.Attribute | ast.Subscript):
            return False
        value = value.func if isinstance(value, ast.Call) else value.value
    return False


def is_data(node: ast.AST | None, scope: Scope) -> bool:
    """Whether a value is plainly no function: written out, made by one of Python's types, or a name for such."""
    if isinstance(node, ast.Name):
        bindings = scope.bindings.get(node.id, [])
        return any(binding.kind == "value" and is_data(binding.node, scope) for binding in bindings)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _TYPES
    return isinstance(node, DATA)
