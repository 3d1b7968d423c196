"""Where a repository defines what a downstream's shims replace, asks for it, and relies on it otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from mcore_unpatch.code.module import BindingKind, scope_of
from mcore_unpatch.code.syntax import parent_of
from mcore_unpatch.code.values import Kind, Value
from mcore_unpatch.codemods.shims.contract import Contract, Shim
from mcore_unpatch.codemods.shims.upstream import Definition
from mcore_unpatch.codemods.syntax import bound_by_import, leaf
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Source
from mcore_unpatch.errors import FileError
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.sources.parsing import Unreadable

# The last part of what is called, where something else is put in the place of a name.
_REPLACING = frozenset({"setattr", "delattr", "patch", "object", "multiple"})
_FARTHEST = 8  # files that pass a name on to each other
Flow = tuple[str, str]  # where a patch is defined, and its rule: all that asks for it moves together


class Place(NamedTuple):
    """A statement that imports a name with a shim, or an expression that reaches it through its module."""

    path: str
    node: ast.ImportFrom | ast.expr
    bound: str  # what the file calls it
    name: str
    shim: Shim
    where: str  # the file that defines it, or the shim's module where no file of the repository does

    @property
    def flow(self) -> Flow:
        """What it belongs to."""
        return self.where, self.shim.names[self.name]

    @property
    def line(self) -> int:
        """Where it stands."""
        return self.node.lineno


class Reach(NamedTuple):
    """A name of a definition that a file says otherwise than by importing it, a star included."""

    path: str
    where: str
    name: str
    line: int
    replaces: bool = False  # it puts something else there


class Places:
    """What a repository has of one downstream."""

    def __init__(self, contract: Contract, repository: Repository) -> None:
        self.contract, self.repository = contract, repository
        self.errors: list[FileError] = []
        self.definitions: dict[str, Definition] = {}
        self._sources: dict[str, Source] = {}
        for path, data in repository.names.index.sources.items():
            if any(word in data for word in contract.words) and contract.hint.search(data):
                try:
                    self._sources[path] = repository.source(path)
                except Unreadable as error:
                    self.errors.append(FileError(path, str(error)))
        for path, source in self._sources.items():
            shim = contract.shim_at(path)
            definition = Definition(contract, shim, source, repository) if shim is not None else None
            if definition is not None and definition.names.intersection(definition.shim.names):
                self.definitions[path] = definition
        self.asked = {path: list(self._asked(source)) for path, source in self._sources.items()}

    def uses(self) -> dict[str, list[Place]]:
        """What asks for the names by path: what tests them goes on with the old, and so do the files of patches."""
        return {path: some for path, some in self.asked.items() if path not in self.definitions and not is_test(path)}

    @cached_property
    def reaching(self) -> list[Reach]:
        """What reaches into the files that define them, tests included."""
        found: list[Reach] = []
        for where, definition in self.definitions.items():
            module = definition.shim.module
            for path in self.repository.names.index.saying(module):
                source = self.repository.readable(path) if path != where else None
                if source is not None and _names_module(source, module):
                    found += _reached(source, definition)
                for node in source.every(ast.ImportFrom) if source else ():
                    there = self._module(node)
                    if node.names[0].name == "*" and there.node is not None and there.node._inner.module.path == where:
                        found += [Reach(path, where, name, node.lineno) for name in definition.shim.names]
        return found

    def _asked(self, source: Source) -> Iterator[Place]:
        known = {name for shim in self.contract.shims for name in shim.names}
        for node in source.every(ast.ImportFrom):
            for alias in node.names if node.module != source.path else ():
                if home := self._home(self._module(node), alias.name):
                    yield Place(source.path, node, bound_by_import(alias, node), *home)
        for reached in source.every(ast.Attribute):
            if reached.attr in known and isinstance(reached.ctx, ast.Load):
                for value in self.repository.names.of(reached.value):
                    if home := self._home(value, reached.attr):
                        yield Place(source.path, reached.value, source.text(reached), *home)

    def _module(self, node: ast.ImportFrom) -> Value:
        """The module that a statement imports from."""
        module = scope_of(node).module
        return self.repository.names.module(module.absolute(node.module, node.level), module.path)

    def _home(self, module: Value, name: str, farthest: int = _FARTHEST) -> tuple[str, Shim, str] | None:
        """The shim's name that a module has under a name, through those that pass it on, and where it is defined."""
        if module.kind == Kind.OTHER:
            shim = self.contract.outside(module.name)
            return (name, shim, shim.compat) if shim is not None and name in shim.names else None
        if module.kind != Kind.MODULE or module.node is None or not farthest:
            return None
        scope = module.node._inner
        if definition := self.definitions.get(scope.module.path):
            return (name, definition.shim, scope.module.path) if name in definition.shim.names else None
        for binding in scope.names.get(name, ()):
            if binding.kind == BindingKind.FROM:
                there = self.repository.names.imported_from(binding, scope)
                if home := self._home(there, binding.value.name, farthest - 1):
                    return home
        return None


def _names_module(source: Source, module: str) -> bool:
    """Whether a file reaches a module of that name otherwise than by importing names from it."""
    imports: list[Any] = source.every(ast.Import, ast.ImportFrom)
    said = {alias.name.rpartition(".")[2] for node in imports for alias in node.names}
    said |= {node.attr for node in source.every(ast.Attribute)}
    texts = (node.value for node in source.every(ast.Constant) if isinstance(node.value, str))
    return module in said or any(module in re.split(r"\W", text) for text in texts)


def _reached(source: Source, definition: Definition) -> Iterator[Reach]:
    """The names that a file may reach in a module: all that it says as an attribute, a keyword or a text."""
    nodes: list[Any] = source.every(ast.Attribute, ast.Constant, ast.keyword)
    for node in nodes:
        above = parent_of(node)
        call = parent_of(above) if isinstance(above, ast.keyword) else above
        replaces = isinstance(call, ast.Call) and leaf(call.func) in _REPLACING
        if isinstance(node, ast.Attribute):
            name, replaces = node.attr, not isinstance(node.ctx, ast.Load)
        else:
            text = node.arg if isinstance(node, ast.keyword) else node.value
            name = re.split(r"[.:]", text)[-1] if isinstance(text, str) else ""
        if name in definition.names:
            yield Reach(source.path, definition.source.path, name, node.lineno, replaces)
