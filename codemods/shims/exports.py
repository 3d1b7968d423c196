"""Which names of which files are a downstream's patches, by themselves or passed on, and the files that use them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from mcore_unpatch.codemods.imports.places import Import
from mcore_unpatch.codemods.shims.contract import Contract, Shim
from mcore_unpatch.codemods.shims.definitions import Definition
from mcore_unpatch.codemods.syntax import bound_by_import, leaf
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Source
from mcore_unpatch.errors import FileError
from mcore_unpatch.library.syntax import dotted
from mcore_unpatch.records import dataclass, field, record
from mcore_unpatch.scanner.sources.parsing import Unreadable

_AS_IT_IS_IMPORTED = ast.If | ast.Try | ast.ExceptHandler
# The last part of what is called, where something else is put in the place of a name.
_REPLACING = frozenset({"setattr", "delattr", "patch", "object", "multiple"})


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
        self.imports: dict[str, list[Import]] = {}  # by file: not its tree, which would be held for all of a scan
        self.errors: list[FileError] = []
        self.definitions: dict[str, Definition] = {}
        self._read: set[str] = set()  # files that could be one
        self._passed_on: dict[str, dict[str, ShimOrigin]] = {}
        self._at_top_level: dict[str, list[Import]] = {}
        # What reaches into these files need not say a name of the shims.
        words = {*contract.words, *(shim.module.encode() for shim in contract.shims)}
        python = (path for path in repository.paths if path.endswith(".py"))
        saying = [path for path in python if (data := self._data(path)) and any(word in data for word in words)]
        for path in saying:
            self._look_at(path, contract.hint)
        known = {definition.shim.module for definition in self.definitions.values()}
        for path in [*self.imports]:
            self._meet_definitions(path)
        self._follow()
        hint = re.compile("|".join(sorted(map(re.escape, known))).encode())
        # A module's name is a word that many files say, and few have something of it: the others are not kept.
        others = [path for path in saying if known and path not in self.imports and hint.search(self._data(path))]
        asked = others
        while asked:
            before, defined = {*self.imports}, len(self.definitions)
            for path in asked:
                exported = self._look_at(path, hint)
                if exported and not self._meet_definitions(path) and not Use(path, self).needs:
                    del self.imports[path]
            self._follow()
            fresh, more = self.imports.keys() - before, len(self.definitions) > defined
            others = [path for path in others if path not in self.imports]
            asked = [path for path in others if more or not fresh.isdisjoint(repository.imported(path))]

    def _data(self, path: str) -> bytes:
        """The bytes of a file; one that cannot be read is an error."""
        try:
            return self.repository.data(path)
        except FileNotFoundError:
            pass
        except (Unreadable, OSError) as error:
            self.errors.append(FileError.of(path, error))
        return b""

    def _look_at(self, path: str, hint: re.Pattern[bytes]) -> bool:
        if hint.search(self._data(path)) is None:
            return False
        try:
            source = self.repository.source(path)
        except Unreadable as error:
            self.errors.append(FileError.of(path, error))
            return False
        self.imports[path], self._at_top_level[path] = _imports_in(source), _imports_in(source, _AS_IT_IS_IMPORTED)
        self._definition(path)
        return True

    def _definition(self, path: str | None) -> Definition | None:
        """The definition at a path, also one outside of what may be edited."""
        shim = self.contract.shim_at(path or "") if path not in self._read else None
        source = self.repository.readable(path or "") if shim is not None else None
        if shim is not None and source is not None:
            self._read.add(source.path)
            definition = Definition(self.contract, shim, source, self.repository)
            if definition.defined or definition.from_shim:
                self.definitions[source.path] = definition
        return self.definitions.get(path or "")

    def _meet_definitions(self, path: str) -> bool:
        """Look every import up, so that definitions outside of what may be edited are known; whether one leads here."""
        names = [(node, alias.name) for node in self.imports[path] for alias in node.names]
        met = [self.origin(path, node, name) for node, name in names if isinstance(node, ast.ImportFrom)]
        met += [self.module(path, name) for node, name in names if isinstance(node, ast.Import)]
        return path in self.definitions or any(met)

    def _follow(self) -> None:
        """Names that a file imports at its top level can be imported from it, through any number of files."""
        changed = True
        while changed:
            changed = False
            for path in self.imports:
                known = self._passed_on.setdefault(path, {})
                for name, origin in self._names_at_top_level(path):
                    if name not in known and path not in self.definitions:
                        known[name] = origin
                        changed = True

    def _names_at_top_level(self, path: str) -> Iterator[tuple[str, ShimOrigin]]:
        for node in (statement for statement in self._at_top_level[path] if isinstance(statement, ast.ImportFrom)):
            for alias in node.names:
                if alias.name == "*":
                    yield from self._star(path, node)
                elif origin := self.origin(path, node, alias.name):
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


@record
class Need:
    """A name that a file reaches in a downstream's file otherwise than by importing it, a star included."""

    where: str  # as `ShimOrigin` says it
    name: str
    line: int
    replaces: bool = False  # it puts something else there


class ShimReference(NamedTuple):
    """A place that asks for a name with a shim: what the file calls it, the statement or expression, what it is."""

    bound: str
    node: ast.ImportFrom | ast.expr
    origin: ShimOrigin


@dataclass
class Use:
    """What one file asks of a downstream."""

    path: str
    exports: Exports
    asked: list[ShimReference] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Look at the imports, and at what is reached without them."""
        modules: defaultdict[str, dict[str, ShimOrigin]] = defaultdict(dict)  # by what the file calls them, and where
        for node in self.exports.imports[self.path]:
            if isinstance(node, ast.ImportFrom):
                for bound, origin in self._from(node):
                    modules[bound][origin.where] = origin
                continue
            for alias in node.names:
                if module := self.exports.module(self.path, alias.name):
                    modules[alias.asname or alias.name][module.where] = module
        for attribute in self.source.every(ast.Attribute) if modules else ():
            bound = dotted(attribute.value)
            for origin in modules.get(bound, {}).values():
                if attribute.attr in origin.shim.names:
                    there = ShimOrigin(origin.shim, attribute.attr, origin.definition)
                    self.asked.append(ShimReference(f"{bound}.{attribute.attr}", attribute.value, there))
        for definition in self.exports.definitions.values():
            said = definition.shim.module.encode() in self.exports.repository.data(self.path)
            if said and definition.source.path != self.path and _names_module(self.source, definition.shim.module):
                self.needs += _reached(self.source, definition)

    @property
    def source(self) -> Source:
        """The file, to be held as long as its nodes matter."""
        return self.exports.repository.source(self.path)

    def _from(self, node: ast.ImportFrom) -> Iterator[tuple[str, ShimOrigin]]:
        """The names that a statement asks for; the modules among them, by what the file calls them."""
        target = self.exports.repository.locate(self.path, node.module or "", node.level) or ""
        for alias in node.names:
            if alias.name == "*":
                names = self.exports.definitions[target].shim.names if target in self.exports.definitions else ()
                self.needs += [Need(target, name, node.lineno) for name in names]
                continue
            origin, bound = self.exports.origin(self.path, node, alias.name), bound_by_import(alias, node)
            if origin is None or node.module == origin.shim.compat or origin.shimmed:
                continue
            if origin.name in origin.shim.names:
                self.asked.append(ShimReference(bound, node, origin))
            elif not origin.name:
                yield bound, origin


def _imports_in(source: Source, through: Any = ast.AST) -> list[Any]:
    """The imports of a file, level by level, through some kinds of nodes; no expression holds one."""
    waiting: list[ast.AST] = [*source.tree.body]
    for node in waiting:
        for below in ("body", "handlers", "orelse", "finalbody", "cases") if isinstance(node, through) else ():
            waiting += getattr(node, below, ())
    return [node for node in waiting if isinstance(node, ast.Import | ast.ImportFrom)]


def _names_module(source: Source, module: str) -> bool:
    """Whether a file reaches a module of that name otherwise than by importing names from it."""
    imports = (alias.name for node in _imports_in(source) for alias in node.names)
    reached = (node.attr for node in source.every(ast.Attribute))
    texts = (re.split(r"\W", node.value) for node in source.every(ast.Constant) if isinstance(node.value, str))
    return module in chain((name.rpartition(".")[2] for name in imports), reached, chain.from_iterable(texts))


def _reached(source: Source, definition: Definition) -> Iterator[Need]:
    """The names that a file may reach in a module: all that it says as an attribute, a keyword or a text."""
    for node in source.every(ast.Attribute, ast.Constant, ast.keyword):
        above = source.parents[node]
        call = source.parents[above] if isinstance(above, ast.keyword) else above
        replaces = isinstance(call, ast.Call) and leaf(call.func) in _REPLACING
        if isinstance(node, ast.Attribute):
            name, replaces = node.attr, not isinstance(node.ctx, ast.Load)
        else:
            text = node.arg if isinstance(node, ast.keyword) else node.value  # type: ignore[attr-defined]
            name = re.split(r"[.:]", text)[-1] if isinstance(text, str) else ""
        if name in definition.names:
            yield Need(definition.source.path, name, node.lineno, replaces)  # type: ignore[attr-defined]
