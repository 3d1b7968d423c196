"""The files that use a downstream's patches, with their imports turned to the shims."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from mcore_unpatch.codemods.changes import Change
from mcore_unpatch.codemods.imports.editor import ImportEditor
from mcore_unpatch.codemods.shims.exports import Exports, Origin
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.codemods.units import bound_by_import


@dataclass
class Use:
    """What becomes of one file: its changes, the names it now has from a shim, and what stays as it was."""

    source: Source
    changes: list[Change] = field(default_factory=list)
    origins: dict[str, Origin] = field(default_factory=dict)  # bound name -> what it stands for
    left: list[tuple[int, str]] = field(default_factory=list)
    needs: set[tuple[str, str]] = field(default_factory=set)  # (definition's path, name) that it still asks for


May = Callable[[Origin, str], bool]
# Further changes of a file that uses the downstream; what they need imported goes to the same editor.
Further = Callable[[Source, ImportEditor], list[Change]]


def turn(source: Source, exports: Exports, may: May, further: Further | None = None) -> Use:
    """Turn the imports of one file; `may(origin, name)` says which names are to be turned."""
    return _Turner(source, exports, may).turned(further)


class _Turner:
    def __init__(self, source: Source, exports: Exports, may: May) -> None:
        self.source, self.exports, self.may = source, exports, may
        self.editor = ImportEditor(source, exports.repository)
        self.use = Use(source)
        self.extra: list[Change] = []

    def turned(self, further: Further | None) -> Use:
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.ImportFrom):
                self._from(node)
            elif isinstance(node, ast.Import):
                self._plain(node)
        if further is not None:
            self.extra += further(self.source, self.editor)
        once = {change.span: change for change in self.extra}
        self.use.changes = [*self.editor.changes(), *once.values()]
        return self.use

    def _from(self, node: ast.ImportFrom) -> None:
        moving: dict[str, set[str]] = {}
        for alias in node.names:
            if alias.name == "*":
                self._star(node)
                continue
            origin = self.exports.origin(self.source.path, node, alias.name)
            if origin is None:
                self._asks_for_something_else(node, alias.name)
                continue
            bound = bound_by_import(alias, node)
            if node.module == origin.shim.compat:
                self.use.origins[bound] = origin
            elif origin.name:
                self._name(node, alias, origin, moving)
            elif self._attributes_may_move(bound, origin, node.lineno, origin.shim.same_module_name):
                moving.setdefault(origin.shim.compat.rpartition(".")[0], set()).add(alias.name)
        for module, names in moving.items():
            self.editor.move(node, names, module)

    def _name(self, node: ast.ImportFrom, alias: ast.alias, origin: Origin, moving: dict[str, set[str]]) -> None:
        if not self.may(origin, origin.name):
            self._stays(origin, origin.name, node.lineno)
            return
        self.use.origins[bound_by_import(alias, node)] = origin
        if alias.name == origin.name:  # else the file in between passes it on under another name, and still does
            moving.setdefault(origin.shim.compat, set()).add(alias.name)

    def _asks_for_something_else(self, node: ast.ImportFrom, name: str) -> None:
        target = self.exports.repository.locate(self.source.path, node.module or "", node.level)
        if target in self.exports.definitions:
            self.use.needs.add((target, name))

    def _star(self, node: ast.ImportFrom) -> None:
        target = self.exports.repository.locate(self.source.path, node.module or "", node.level)
        if target in self.exports.definitions:
            self.use.needs.update((target, name) for name in self.exports.definitions[target].shim.names)

    def _stays(self, origin: Origin, name: str, line: int) -> None:
        if origin.definition is not None:
            self.use.needs.add((origin.definition.source.path, name))
        self.use.left.append((line, name))

    def _plain(self, node: ast.Import) -> None:
        for alias in node.names:
            origin = self.exports.module(self.source.path, alias.name)
            if origin is None:
                continue
            if alias.asname:
                if self._attributes_may_move(alias.asname, origin, node.lineno):
                    self.editor.rename(node, alias, origin.shim.compat)
            else:
                self._dotted(node, alias, origin)

    def _dotted(self, node: ast.Import, alias: ast.alias, origin: Origin) -> None:
        """`import a.b.c` and every `a.b.c.name`."""
        top = alias.name.partition(".")[0]
        attributes = (node for node in ast.walk(self.source.tree) if isinstance(node, ast.Attribute))
        inner = [attribute for attribute in attributes if dotted(attribute.value) == alias.name]
        if not inner or not all(self._may_move(origin, use.attr, node.lineno) for use in inner):
            return
        for use in inner:
            self.use.origins[f"{origin.shim.compat}.{use.attr}"] = origin
            self.extra.append(Change(self.source.span(use.value), origin.shim.compat))
        others = [n for n in ast.walk(self.source.tree) if isinstance(n, ast.Name) and n.id == top]
        bound_again = any(
            bound_by_import(other, n) == top
            for n in ast.walk(self.source.tree)
            if isinstance(n, ast.Import)
            for other in n.names
            if other is not alias
        )
        if len(others) == len(inner) or bound_again:
            self.editor.rename(node, alias, origin.shim.compat)
        else:  # the name of the package is still used
            self.editor.add_beside(node, origin.shim.compat)

    def _attributes_may_move(self, bound: str, origin: Origin, line: int, nameable: bool = True) -> bool:
        """Whether every use of a module's name is `module.name` with a name that its shim has."""
        names = [n for n in ast.walk(self.source.tree) if isinstance(n, ast.Name) and n.id == bound]
        uses = {id(n.value): n for n in ast.walk(self.source.tree) if isinstance(n, ast.Attribute)}
        attributes = [uses[id(name)].attr if id(name) in uses else "" for name in names]
        movable = [self._may_move(origin, attribute, line) for attribute in attributes]
        if not nameable or not attributes or not all(movable):
            for attribute in attributes:
                if origin.definition is not None and attribute:
                    self.use.needs.add((origin.definition.source.path, attribute))
            return False
        for attribute in attributes:
            self.use.origins[f"{bound}.{attribute}"] = Origin(origin.shim, attribute, origin.definition)
        return True

    def _may_move(self, origin: Origin, name: str, line: int) -> bool:
        if name not in origin.shim.names:
            return False
        if self.may(origin, name):
            return True
        self._stays(origin, name, line)
        return False


def dotted(node: ast.AST) -> str:
    """`a.b.c` as text; empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (inner := dotted(node.value)):
        return f"{inner}.{node.attr}"
    return ""
