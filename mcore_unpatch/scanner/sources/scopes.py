"""One module as the scanner sees it: its scopes, what each name is bound to, the places that may install a patch."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from mcore_unpatch.library.syntax import last_attribute as last_attribute
from mcore_unpatch.scanner.sources.nodes import first_line

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_LONGEST_PATH = 40  # names in `a.b.c`


@dataclass(slots=True, eq=False)
class Block:
    """A run of statements; `kind` says what opened it (body, finally, with, ...)."""

    parent: Block | None
    kind: str = "body"
    owner: ast.stmt | None = None

    @property
    def line(self) -> int:
        """The first line of the statement that opened it."""
        return self.owner.lineno if self.owner else 0

    def within(self, other: Block) -> bool:
        """Whether this block is `other` or lies inside it."""
        block: Block | None = self
        while block is not None and block is not other:
            block = block.parent
        return block is not None

    def outwards(self) -> Iterator[Block]:
        """This block and those around it."""
        block: Block | None = self
        while block is not None:
            yield block
            block = block.parent


@dataclass(slots=True, eq=False)
class Binding:
    """One place where a name gets its value.

    kind: import, from, def, class, value (an expression), item (of it), param, narrow (isinstance), changed (`+=`).
    """

    kind: str
    line: int
    block: Block
    node: ast.AST | None = None
    detail: str = ""


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class or function body. Attribute paths such as `self.model` are bound like names."""

    kind: str
    node: ast.AST
    parent: Scope | None
    block: Block
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)

    @property
    def function(self) -> Scope | None:
        """The innermost function around this scope, itself included."""
        scope: Scope | None = self
        while scope is not None and scope.kind != "function":
            scope = scope.parent
        return scope

    @property
    def qualified_name(self) -> str:
        """The names of the classes and functions around it, the outermost first; those without a name do not count."""
        names = [getattr(scope.node, "name", "") for scope in self.outwards()]
        return ".".join(name for name in reversed(names) if name)

    def outwards(self) -> Iterator[Scope]:
        """This scope and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def chain(self) -> Iterator[Scope]:
        """Scopes in which a name used here is looked up, innermost first."""
        yield self
        scope = self.parent
        while scope is not None:
            if scope.kind != "class":
                yield scope
            scope = scope.parent

    def home_of(self, name: str) -> Scope | None:
        """The innermost scope that binds a name used here."""
        return next((scope for scope in self.chain() if name in scope.bindings), None)

    def bindings_of(self, name: str) -> list[Binding]:
        """What a name used here is bound to, in the innermost scope that has it."""
        home = self.home_of(name)
        return home.bindings[name] if home is not None else []


@dataclass(slots=True, eq=False)
class Site:
    """A statement that may install a patch: `target = value`, or a call."""

    node: ast.stmt | ast.expr
    statement: ast.stmt
    scope: Scope
    block: Block
    target: ast.expr | None = None
    value: ast.expr | None = None
    decorated: FunctionNode | ast.ClassDef | None = None
    in_text: bool = False  # of what `exec` is given

    @property
    def written(self) -> tuple[ast.expr, ast.expr, ast.expr] | None:
        """The object, the name and the value of `x.name = v`, `x.__dict__["name"] = v`, `setattr(x, name, v)`."""
        match self.target or self.node:
            case ast.Attribute(attr=name, value=subject) if self.value is not None:
                return subject, ast.Constant(name), self.value
            case ast.Subscript(slice=key, value=mapping) if self.value is not None:
                return dict_owner(mapping) or mapping, key, self.value
            case ast.Call(func=ast.Name(id="setattr"), args=[subject, key, value]):
                return subject, key, value
        return None

    @property
    def call(self) -> ast.Call:
        """The call that this is."""
        assert isinstance(self.node, ast.Call)
        return self.node


@dataclass(slots=True, eq=False)
class ModuleModel:
    """Everything one pass over a module collects."""

    path: str
    data: bytes
    tree: ast.Module
    scope: Scope
    sites: list[Site] = field(default_factory=list)
    calls: list[Site] = field(default_factory=list)
    literals: list[Site] = field(default_factory=list)  # displays assigned to a name: a table of patches may be one
    functions: dict[ast.AST, Scope] = field(default_factory=dict)
    classes: dict[ast.ClassDef, Scope] = field(default_factory=dict)
    returns: dict[ast.AST, list[tuple[ast.Return, Block]]] = field(default_factory=dict)
    stars: list[Binding] = field(default_factory=list)
    blocks: list[tuple[list[ast.stmt], Block, Scope]] = field(default_factory=list)
    _innermost: list[int] = field(default_factory=list)

    def at(self, line: int) -> tuple[Scope, Block]:
        """The innermost scope and block around a line."""
        _, block, scope = self._around(line)
        return scope, block

    def statements_at(self, line: int) -> list[ast.stmt]:
        """The statements of the innermost block that span a line."""
        statements, _, _ = self._around(line)
        index = bisect_right(statements, line, key=first_line)
        spanning = []
        while index and (statements[index - 1].end_lineno or 0) >= line:
            index -= 1
            spanning.append(statements[index])
        return spanning[::-1]

    def _around(self, line: int) -> tuple[list[ast.stmt], Block, Scope]:
        if not self._innermost:  # blocks stand in the order of the source, the outer before the inner
            self._innermost = [0] * (_last_line(self.tree.body) + 1)
            for number, (body, _, _) in enumerate(self.blocks):
                first, last = first_line(body[0]), _last_line(body)
                self._innermost[first : last + 1] = [number] * (last + 1 - first)
        return self.blocks[self._innermost[line] if line < len(self._innermost) else 0]


def _last_line(statements: list[ast.stmt]) -> int:
    return statements[-1].end_lineno or statements[-1].lineno if statements else 0


def path_text(node: ast.expr) -> str | None:
    """`a.b.c` as text, or None for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < _LONGEST_PATH:
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else None


def object_text(node: ast.expr) -> str | None:
    """An object as it is written, `model` or `models[0]`; None for what may be another one each time."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        inner = path_text(node.value)
        return f"{inner}[{node.slice.value!r}]" if inner else None
    return path_text(node)


def given_to(node: ast.expr, scope: Scope) -> FunctionNode | None:
    """The function around `scope` that has the name `node` as a parameter."""
    home = scope.home_of(node.id) if isinstance(node, ast.Name) else None
    is_parameter = home is not None and home.bindings[node.id][-1].kind == "param"  # type: ignore[attr-defined]
    return home.node if is_parameter else None  # type: ignore[union-attr,return-value]


def dict_owner(node: ast.expr) -> ast.expr | None:
    """`x` in `x.__dict__`, `vars(x)`, `x.__globals__` and, of its children, `x._modules`."""
    if isinstance(node, ast.Attribute) and node.attr in {"__dict__", "__globals__", "_modules"}:
        return node.value
    if isinstance(node, ast.Call) and path_text(node.func) == "vars" and len(node.args) == 1:
        return node.args[0]
    return None


def last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`; empty for any other expression."""
    return (path_text(node) or "").rpartition(".")[2]
