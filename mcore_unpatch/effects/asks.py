"""What code asks of the library: each import, each name that is read, each call; read once for all releases."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mcore_unpatch.code.module import Module, scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import FUNCTIONS, NAMED_FUNCTIONS, children, last_name, parent_of, text_of
from mcore_unpatch.code.values import Kind
from mcore_unpatch.effects.keywords import put_into
from mcore_unpatch.effects.meaning import Meant, meant
from mcore_unpatch.effects.records import Place, When, place_of
from mcore_unpatch.library.interface import Release
from mcore_unpatch.library.signatures import Call, written_call

_DEEPEST = 3  # helpers within one another
_MOST_HELPERS = 30
_SILENT = (ast.Name, ast.Constant)  # ask nothing themselves


@dataclass(frozen=True, eq=False)
class Ask:
    """One use of a name of the library's; `module` where it is imported, `call` where it is called."""

    names: tuple[str, ...]  # several where several imports bind it
    node: Any
    when: When
    path: str
    call: Call | None = None
    module: str = ""
    by_name: bool = False  # the file's own name for it: what fails is the import
    through_class: bool = False
    added: frozenset[str] = frozenset()  # keywords that a class of the repository takes itself

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]

    @property
    def place(self) -> Place:
        """Where it stands."""
        return place_of(self.node, self.path, self.when)

    def on(self, release: Release) -> str:
        """The name that a release has, where several imports bind it."""
        return next((name for name in self.names if release.has(name)), self.name)


class Asks:
    """What the code of a repository asks, each piece of it read once."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._of_code: dict[tuple[int, When, bool], tuple[Ask, ...]] = {}
        self._of_import: dict[tuple[str, bool], tuple[Ask, ...]] = {}
        self._kept: list[ast.AST] = []  # so that no other node gets the identity of one that was asked about

    def of_import(self, module: Module, follow: bool = True) -> tuple[Ask, ...]:
        """What the import of a file asks: its imports, and what its statements read."""
        key = (module.path, follow)
        if key not in self._of_import:
            depth = _DEEPEST if follow else 0
            found = self._walk(list(module.tree.body), When.IMPORT, module.path, False, set(), depth)
            self._of_import[key] = tuple(found)
        return self._of_import[key]

    def of_code(self, code: Any, when: When, inner: bool = True, follow: bool = True) -> tuple[Ask, ...]:
        """What a function or class does when it runs, with the helpers of the repository that it calls."""
        key = (id(code), when, inner and follow)
        if key not in self._of_code:
            self._kept.append(code)
            body = code.body if isinstance(code.body, list) else [code.body]
            path = scope_of(code).module.path
            depth = _DEEPEST if follow else 0
            self._of_code[key] = tuple(self._walk(list(body), when, path, inner, {id(code)}, depth))
        return self._of_code[key]

    def _walk(self, todo: list[Any], when: When, path: str, inner: bool, seen: set[int], depth: int) -> Iterator[Ask]:
        todo = todo[::-1]
        while todo:
            node = todo.pop()
            kind = node.__class__
            if kind in _SILENT:
                continue
            if kind in (ast.Import, ast.ImportFrom):
                yield from self._imported(node, when, path)
                continue
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                todo += _of_definition(node, inner)
                continue
            if kind is ast.AnnAssign:
                todo += [one for one in (node.value, node.target) if one is not None]
                continue
            if kind is ast.If and last_name(node.test) == "TYPE_CHECKING":
                todo += node.orelse[::-1]
                continue
            if kind is ast.Call:
                name = last_name(node.func)
                if name == "hasattr":
                    continue  # reads nothing
                if name == "getattr" and len(node.args) == 2 and (text := text_of(node.args[1])) is not None:
                    yield from self._read(_as_attribute(node, text), when, path)
                    todo.append(node.args[0])
                    continue
                known = meant(self.names, node.func)
                if known is not None:
                    call = written_call(node, unpacked(node), put_into(node))
                    yield _ask(known, node, when, path, call)
                    yield from self._prefixes(known, node.func, when, path)
                else:
                    yield from self._helper(node, when, inner, seen, depth)
                    todo.append(node.func)
                todo += [*(word.value for word in reversed(node.keywords)), *reversed(node.args)]
                continue
            if kind is ast.Attribute and isinstance(node.ctx, ast.Load):
                known = meant(self.names, node)
                if known is not None:
                    yield _ask(known, node, when, path)
                    yield from self._prefixes(known, node, when, path)
                    if known.parts:
                        continue
            todo += reversed(list(children(node)))

    def _read(self, node: ast.Attribute, when: When, path: str) -> Iterator[Ask]:
        if (known := meant(self.names, node)) is not None:
            yield _ask(known, node, when, path)

    def _imported(self, node: Any, when: When, path: str) -> Iterator[Ask]:
        within = self.names.library.within
        if isinstance(node, ast.Import):
            for alias in node.names:
                if within(alias.name):
                    yield Ask((alias.name,), node, when, path, module=alias.name)
        elif not node.level and within(node.module or ""):
            for alias in node.names:
                name = f"{node.module}.{alias.name}" if alias.name != "*" else node.module
                yield Ask((name,), node, when, path, module=node.module)

    def _prefixes(self, known: Meant, node: ast.AST, when: When, path: str) -> Iterator[Ask]:
        """What `module.Class.method` reads on the way."""
        for cut in range(known.parts - 1, 0, -1):
            names = tuple(name.rsplit(".", cut)[0] for name in known.names)
            yield Ask(names, node, when, path, through_class=True)

    def _helper(self, node: ast.Call, when: When, inner: bool, seen: set[int], depth: int) -> Iterator[Ask]:
        """What a function of the repository asks that is called."""
        values = self.names.of(node.func) if depth else ()
        if len(values) != 1 or values[0].kind != Kind.FUNCTION or not isinstance(values[0].node, NAMED_FUNCTIONS):
            return
        function = values[0].node
        if id(function) in seen or len(seen) > _MOST_HELPERS:
            return
        seen.add(id(function))
        path = scope_of(function).module.path
        yield from self._walk(list(function.body), when, path, when == When.CALL, seen, depth - 1)


def _of_definition(node: Any, inner: bool) -> list[Any]:
    """What a definition runs where it stands; `inner`: what it holds runs as well."""
    if isinstance(node, ast.Lambda):
        return [node.body] if inner else []
    run = list(node.decorator_list)
    if isinstance(node, ast.ClassDef):
        return [*reversed(node.body), *node.bases, *run]
    run += [one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None]
    return [*(reversed(node.body) if inner else ()), *reversed(run)]


def _as_attribute(call: ast.Call, name: str) -> ast.Attribute:
    node = ast.copy_location(ast.Attribute(call.args[0], name, ast.Load()), call)
    node._parent = parent_of(call)  # type: ignore[attr-defined]
    return node


def _ask(known: Meant, node: ast.AST, when: When, path: str, call: Call | None = None) -> Ask:
    return Ask(known.names, node, when, path, call, "", known.by_name, known.through_class, known.added)


def unpacked(node: ast.Call) -> int:
    """Into how many names the result of a call is taken apart."""
    parent = parent_of(node)
    if not isinstance(parent, ast.Assign) or parent.value is not node or not isinstance(parent.targets[0], ast.Tuple):
        return 0
    parts = parent.targets[0].elts
    return 0 if any(isinstance(part, ast.Starred) for part in parts) else len(parts)
