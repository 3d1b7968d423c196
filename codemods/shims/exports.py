"""Which names of which files are a downstream's patches: those of its own files, and those that others pass on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from mcore_unpatch.codemods.shims.contract import Contract, Shim
from mcore_unpatch.codemods.shims.definitions import Definition
from mcore_unpatch.codemods.syntax import bound_by_import
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Source
from mcore_unpatch.findings.finding import FileError
from mcore_unpatch.scanner.sources.parsing import Unreadable


@dataclass(frozen=True)
class ShimOrigin:
    """What an imported name stands for: a name of a shim, or with no name the module itself."""

    shim: Shim
    name: str = ""
    definition: Definition | None = None  # None where the downstream is installed and no part of the repository
    shimmed: bool = False  # the shim's module itself is meant

    @property
    def where(self) -> str:
        """The path of the file that defines it, or the shim's module where no file of the repository does."""
        return self.definition.source.path if self.definition else self.shim.compat


class Exports:
    """The files of a repository that have to do with one downstream."""

    def __init__(self, contract: Contract, repository: Repository) -> None:
        self.contract, self.repository = contract, repository
        self.sources: dict[str, Source] = {}
        self.errors: list[FileError] = []
        self.definitions: dict[str, Definition] = {}
        self._passed_on: dict[str, dict[str, ShimOrigin]] = {}
        # What reaches into these files need not say a name of the shims.
        words = {*contract.names, *(shim.module.encode() for shim in contract.shims)}
        python = (path for path in repository.paths if path.endswith(".py"))
        saying = [path for path in python if (data := self._data(path)) and any(word in data for word in words)]
        for path in saying:
            self._look_at(path, contract.hint)
        if self.definitions:
            known = {definition.shim.module for definition in self.definitions.values()}
            hint = re.compile("|".join(sorted(map(re.escape, known))).encode())
            for path in saying:
                self._look_at(path, hint)
        for source in self.sources.values():
            self._meet_definitions(source)
        self._follow()

    def _data(self, path: str) -> bytes:
        """The bytes of a file; one that cannot be read is an error."""
        try:
            return self.repository.data(path)
        except FileNotFoundError:
            pass
        except Unreadable as error:
            self.errors.append(FileError(path, str(error)))
        except OSError as error:
            self.errors.append(FileError(path, f"cannot be read: {error.strerror or error}"))
        return b""

    def _look_at(self, path: str, hint: re.Pattern[bytes]) -> None:
        if path in self.sources or hint.search(self._data(path)) is None:
            return
        try:
            self.sources[path] = self.repository.source(path)
        except Unreadable as error:
            self.errors.append(FileError(path, str(error)))
            return
        self._define(self.sources[path])

    def _define(self, source: Source) -> Definition | None:
        shim = self.contract.shim_at(source.path)
        if shim is None:
            return None
        definition = Definition(self.contract, shim, source, self.repository)
        if not definition.defined and not definition.from_shim:
            return None
        self.definitions[source.path] = definition
        return definition

    def _definition(self, path: str | None) -> Definition | None:
        """The definition at a path, also one outside of what may be edited."""
        if path is None or path in self.definitions or not self.contract.shim_at(path):
            return self.definitions.get(path or "")
        try:
            return self._define(self.repository.source(path))
        except (Unreadable, OSError):
            return None

    def _meet_definitions(self, source: Source) -> None:
        """Look every import up once, so that definitions outside of what may be edited are known from the start."""
        for node in source.every(ast.Import, ast.ImportFrom):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.origin(source.path, node, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self.module(source.path, alias.name)

    def _follow(self) -> None:
        """Names that a file imports at its top level can be imported from it, through any number of files."""
        changed = True
        while changed:
            changed = False
            for path, source in self.sources.items():
                known = self._passed_on.setdefault(path, {})
                for name, origin in self._at_top_level(source):
                    if name not in known and path not in self.definitions:
                        known[name] = origin
                        changed = True

    def _at_top_level(self, source: Source) -> Iterator[tuple[str, ShimOrigin]]:
        waiting: list[ast.AST] = [*source.tree.body]
        for node in waiting:
            if isinstance(node, ast.If | ast.Try | ast.ExceptHandler):
                waiting += ast.iter_child_nodes(node)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if alias.name == "*":
                        yield from self._star(source.path, node)
                    elif origin := self.origin(source.path, node, alias.name):
                        yield bound_by_import(alias, node), origin

    def _star(self, path: str, node: ast.ImportFrom) -> Iterator[tuple[str, ShimOrigin]]:
        definition = self._definition(self.repository.locate(path, node.module or "", node.level))
        if definition is not None:
            for name in definition.shim.names:
                if name in definition.defined or name in definition.from_shim:
                    yield name, ShimOrigin(definition.shim, name, definition)

    def origin(self, path: str, node: ast.ImportFrom, name: str) -> ShimOrigin | None:
        """What `from ... import name` in a file stands for."""
        module = node.module or ""
        target = self.repository.locate(path, module, node.level)
        if definition := self._definition(target):
            known = name in definition.defined or name in definition.from_shim
            return ShimOrigin(definition.shim, name, definition) if known else None
        submodule = self.repository.locate(path, f"{module}.{name}" if module else name, node.level)
        if definition := self._definition(submodule):
            return ShimOrigin(definition.shim, "", definition)
        if target is not None:
            return self._passed_on.get(target, {}).get(name)
        return self._installed(module, name) if not node.level else None

    def _installed(self, module: str, name: str) -> ShimOrigin | None:
        for shim in self.contract.shims:
            if module == shim.compat and name in shim.names:
                return ShimOrigin(shim, name, shimmed=True)
        if shim_ := self.contract.outside(module):
            return ShimOrigin(shim_, name) if name in shim_.names else None
        shim_ = self.contract.outside(f"{module}.{name}")
        return ShimOrigin(shim_) if shim_ else None

    def module(self, path: str, dotted: str) -> ShimOrigin | None:
        """What `import a.b.c` in a file stands for."""
        if definition := self._definition(self.repository.locate(path, dotted, 0)):
            return ShimOrigin(definition.shim, "", definition)
        shim = self.contract.outside(dotted) if self.repository.locate(path, dotted, 0) is None else None
        return ShimOrigin(shim) if shim else None
