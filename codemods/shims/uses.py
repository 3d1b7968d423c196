"""The files that use a downstream's patches, with their imports turned to the shims."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from mcore_unpatch.codemods.changes import Asked, Reason, least_safe
from mcore_unpatch.codemods.shims.definitions import Definition
from mcore_unpatch.codemods.shims.exports import Exports, ShimOrigin
from mcore_unpatch.codemods.syntax import bound_by_import, leaf
from mcore_unpatch.editing.source import Source
from mcore_unpatch.library.syntax import dotted

if TYPE_CHECKING:  # a look at a file, as `check` takes it, edits nothing
    from mcore_unpatch.codemods.imports.editor import ImportEditor

# The last part of what is called, where something else is put in the place of a name.
_REPLACING = frozenset({"setattr", "delattr", "patch", "object", "multiple"})


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
        self._modules: dict[str, dict[str, ShimOrigin]] = {}  # by what the file calls them, and where they lie

    def turned(self) -> Use:
        for node in self.source.every(ast.Import, ast.ImportFrom):
            if isinstance(node, ast.ImportFrom):
                self._from(node)
                continue
            for alias in node.names if isinstance(node, ast.Import) else ():
                if origin := self.exports.module(self.source.path, alias.name):
                    self._module(alias.asname or alias.name, origin)
        if self._modules:
            self._through_modules()
        for definition in self.exports.definitions.values():
            if definition.source is not self.source and _names_module(self.source, definition.shim.module):
                self.use.needs += _reached(self.source, definition)
        return self.use

    def _need(self, where: str, name: str, line: int) -> None:
        self.use.needs.append(Need(where, name, line))

    def _from(self, node: ast.ImportFrom) -> None:
        moving: dict[str, dict[str, Reason]] = {}
        target = self.exports.repository.locate(self.source.path, node.module or "", node.level)
        for alias in node.names:
            if alias.name == "*":
                for name in self.exports.definitions[target].shim.names if target in self.exports.definitions else ():
                    self._need(target or "", name, node.lineno)
                continue
            origin = self.exports.origin(self.source.path, node, alias.name)
            bound = bound_by_import(alias, node)
            if origin is None:
                if target in self.exports.definitions:  # it asks for something else
                    self._need(target or "", alias.name, node.lineno)
            elif node.module == origin.shim.compat or origin.shimmed:
                self.use.origins[bound] = origin
            elif origin.name in origin.shim.names:
                self._name(node, alias, origin, moving)
            elif origin.name:  # the file has it from the shim itself
                self._need(origin.where, origin.name, node.lineno)
            else:
                self._module(bound, origin)
        for module, names in moving.items():
            self.use.turned = True
            assert self._editor is not None, "a look at a file moves nothing"
            self._editor.move(node, set(names), module, least_safe(names.values()))

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

    def _module(self, bound: str, origin: ShimOrigin) -> None:
        self._modules.setdefault(bound, {})[origin.where] = origin

    def _through_modules(self) -> None:
        """Every name of a shim that is reached in a module which the file imports whole."""
        for node in self.source.every(ast.Attribute):
            bound = dotted(node.value)
            for origin in self._modules.get(bound, {}).values():
                if node.attr in origin.shim.names:
                    there = ShimOrigin(origin.shim, node.attr, origin.definition)
                    self.use.asked.append(ShimReference(f"{bound}.{node.attr}", node.value, there))


def _names_module(source: Source, module: str) -> bool:
    """Whether a file reaches a module of that name otherwise than by importing names from it."""
    if module.encode() not in source.data:
        return False
    imports = (alias.name for node in source.every(ast.Import, ast.ImportFrom) for alias in node.names)  # type: ignore[attr-defined]
    texts = (node.value for node in source.every(ast.Constant) if isinstance(node.value, str))
    return (
        any(name.rpartition(".")[2] == module for name in imports)
        or any(node.attr == module for node in source.every(ast.Attribute))
        or any(module in re.split(r"\W", text) for text in texts)
    )


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
