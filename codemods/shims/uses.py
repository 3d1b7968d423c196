"""The files that use a downstream's patches, with their imports turned to the shims."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from mcore_unpatch.codemods.changes import Asked, Reason, least_safe
from mcore_unpatch.codemods.shims.definitions import Definition
from mcore_unpatch.codemods.shims.exports import Exports, ShimOrigin
from mcore_unpatch.codemods.syntax import bound_by_import
from mcore_unpatch.editing.source import Source

if TYPE_CHECKING:  # a look at a file, as `check` takes it, edits nothing
    from mcore_unpatch.codemods.imports.editor import ImportEditor
    from mcore_unpatch.codemods.shims.reaches import Reaches


@dataclass(frozen=True, slots=True)
class Need:
    """A name that a file asks of a downstream's file, which `where` says as `ShimOrigin` does."""

    where: str
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
    """What becomes of one file: its changes, the names it now has from a shim, and what stays as it was."""

    source: Source
    changes: list[Asked] = field(default_factory=list)  # those of its imports are with its import editor
    turned: bool = False
    origins: dict[str, ShimOrigin] = field(default_factory=dict)  # bound name -> what it stands for
    asked: list[ShimReference] = field(default_factory=list)
    moved: list[ShimReference] = field(default_factory=list)  # those of them that have it from the shim now
    needs: list[Need] = field(default_factory=list)


# Why a name is turned to its shim at a place; None if it is not to be.
Why = Callable[[ShimReference], Reason | None]


def turn(source: Source, exports: Exports, why: Why, editor: ImportEditor | None = None) -> Use:
    """Turn the imports of one file; without an editor there is a look at it alone."""
    return _Turner(source, exports, why, editor).turned()


class _Turner:
    def __init__(self, source: Source, exports: Exports, why: Why, editor: ImportEditor | None) -> None:
        self.source, self.exports, self.why, self._editor = source, exports, why, editor
        self.use = Use(source)
        self.modules: set[str] = set()  # what the file calls modules that it imports
        self.looked_through: set[tuple[str, str]] = set()
        self.needed: set[tuple[str, str, bool]] = set()

    @property
    def reaches(self) -> Reaches:
        """How the file reaches into modules; many need not be asked."""
        return self.exports.reaches(self.source)

    @property
    def editor(self) -> ImportEditor:
        assert self._editor is not None, "a look at a file moves nothing"
        return self._editor

    def turned(self) -> Use:
        for node in self.source.every(ast.Import, ast.ImportFrom):
            if isinstance(node, ast.ImportFrom):
                self._from(node)
                continue
            for alias in node.names if isinstance(node, ast.Import) else ():
                if origin := self.exports.module(self.source.path, alias.name):
                    self._module(alias.asname or alias.name, origin)
        modules = {definition.shim.module for definition in self.exports.definitions.values()}
        for where, reach in self.reaches.by_text(modules, self._definition_at) if modules else ():
            self._need(where, reach.name, reach.line, reach.replaces)
        for definition in self.exports.definitions.values():
            self._from_package(definition)
        return self.use

    def _from_package(self, definition: Definition) -> None:
        """`package.module.name` where the package is imported and the module is not."""
        modules = {name for name in self.reaches.named if name.endswith(f".{definition.shim.module}")}
        for module in sorted(modules - self.modules - {definition.shim.compat}):
            for reach in self.reaches.through(module):
                self._need(definition.source.path, reach.name, reach.line, reach.replaces)
        for reach in self.reaches.beyond(definition.shim.module):
            self._need(definition.source.path, reach.name, reach.line, reach.replaces)

    def _definition_at(self, module: str) -> str | None:
        path = self.exports.repository.locate(self.source.path, module, 0)
        return path if path in self.exports.definitions else None

    def _need(self, where: str, name: str, line: int, replaces: bool = False) -> None:
        """Note a name; where only the module is to be seen, each one that the file says may be meant."""
        if (where, name, replaces) in self.needed:
            return
        self.needed.add((where, name, replaces))
        names = {name}
        if not name and where in self.exports.definitions:
            names = self.reaches.words & self.exports.definitions[where].names
        self.use.needs += [Need(where, name, line, replaces) for name in sorted(names)]

    def _from(self, node: ast.ImportFrom) -> None:
        moving: dict[str, dict[str, Reason]] = {}
        for alias in node.names:
            if alias.name == "*":
                self._star(node)
                continue
            origin = self.exports.origin(self.source.path, node, alias.name)
            if origin is None:
                self._asks_for_something_else(node, alias.name)
                continue
            bound = bound_by_import(alias, node)
            if node.module == origin.shim.compat or origin.shimmed:
                self.use.origins[bound] = origin
            elif origin.name in origin.shim.names:
                self._name(node, alias, origin, moving)
            elif origin.name:  # the file has it from the shim itself
                self._need(origin.where, origin.name, node.lineno)
            else:
                self._module(bound, origin)
        for module, names in moving.items():
            self.use.turned = True
            self.editor.move(node, set(names), module, least_safe(names.values()))

    def _name(
        self, node: ast.ImportFrom, alias: ast.alias, origin: ShimOrigin, moving: dict[str, dict[str, Reason]]
    ) -> None:
        place = ShimReference(bound_by_import(alias, node), node, origin)
        reason = self.why(place)
        self.use.asked.append(place)
        if reason is None:
            self._need(origin.where, origin.name, node.lineno)
            return
        self.use.origins[place.bound] = origin
        if alias.name == origin.name:  # else the file in between passes it on under another name, and still does
            self.use.moved.append(place)
            moving.setdefault(origin.shim.compat, {})[alias.name] = reason

    def _asks_for_something_else(self, node: ast.ImportFrom, name: str) -> None:
        target = self.exports.repository.locate(self.source.path, node.module or "", node.level)
        if target in self.exports.definitions:
            self._need(target, name, node.lineno)

    def _star(self, node: ast.ImportFrom) -> None:
        target = self.exports.repository.locate(self.source.path, node.module or "", node.level)
        if target in self.exports.definitions:
            for name in self.exports.definitions[target].shim.names:
                self._need(target, name, node.lineno)

    def _module(self, bound: str, origin: ShimOrigin) -> None:
        """Every name that is reached in a module that the file imports whole."""
        self.modules.add(bound)
        if (bound, origin.where) in self.looked_through:
            return
        self.looked_through.add((bound, origin.where))
        for reach in self.reaches.through(bound):
            self._need(origin.where, reach.name, reach.line, reach.replaces)
            if reach.name in origin.shim.names:
                there = ShimOrigin(origin.shim, reach.name, origin.definition)
                self.use.asked.append(ShimReference(f"{bound}.{reach.name}", reach.node, there))
