"""Where a repository defines what a downstream's shims replace, asks for it, and relies on it otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from mcore_unpatch.code.module import BindingKind, scope_of
from mcore_unpatch.code.values import Kind, Value
from mcore_unpatch.codemods.shims.contract import Contract, Shim
from mcore_unpatch.codemods.shims.upstream import Definition
from mcore_unpatch.codemods.syntax import bound_by_import
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Source
from mcore_unpatch.errors import FileError
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.sources.parsing import Unreadable

_PATH = re.compile(r"[\w.:/]+")
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

    def reaching(self) -> Iterator[tuple[str, str, int]]:
        """What names a definition's module otherwise than to import names from it: the definition, the file, the line.

        It would go on with the patch as it is, or has put something else into the module, which a shim does not see.
        """
        for where, definition in self.definitions.items():
            module = definition.shim.module
            for source in self.repository.sources_naming(module):
                lines = [line for line, text in _names(source) if module in re.split(r"\W", text)]
                if lines and source.path != where and not is_test(source.path):
                    said = (name.encode() in source.data for name in ("import *", *definition.names))
                    if any(said):
                        yield where, source.path, min(lines)

    def _asked(self, source: Source) -> Iterator[Place]:
        known = {name for shim in self.contract.shims for name in shim.names}
        for node in source.every(ast.ImportFrom):
            for alias in node.names:
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


def _names(source: Source) -> Iterator[tuple[int, str]]:
    """All that a file may name a module by: attributes, imports of modules and of all names, texts like paths."""
    nodes: list[Any] = source.every(ast.Attribute, ast.Constant, ast.Import, ast.ImportFrom)
    for node in nodes:
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Constant):
            yield node.lineno, node.value if isinstance(node.value, str) and _PATH.fullmatch(node.value) else ""
        else:
            yield from ((node.lineno, alias.name) for alias in node.names)
            yield node.lineno, (getattr(node, "module", "") or "") if node.names[0].name == "*" else ""
