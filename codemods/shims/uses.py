"""The files that use a downstream's patches, with their imports turned to the shims."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from mcore_unpatch.codemods.changes import Reason, least_safe
from mcore_unpatch.codemods.edits import Edit
from mcore_unpatch.codemods.imports.editor import ImportEditor
from mcore_unpatch.codemods.shims.exports import Exports, Origin
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.codemods.units import bound_by_import


@dataclass
class Use:
    """What becomes of one file: its edits, the names it now has from a shim, and what stays as it was."""

    source: Source
    edits: list[Edit] = field(default_factory=list)  # those of its imports are with its import editor
    turned: bool = False
    origins: dict[str, Origin] = field(default_factory=dict)  # bound name -> what it stands for
    left: list[tuple[int, str]] = field(default_factory=list)
    needs: set[tuple[str, str]] = field(default_factory=set)  # (definition's path, name) that it still asks for


# Why a name is turned to its shim; None if it is not to be.
Why = Callable[[Origin, str], Reason | None]


def turn(source: Source, exports: Exports, why: Why, editor: ImportEditor) -> Use:
    """Turn the imports of one file."""
    return _Turner(source, exports, why, editor).turned()


class _Turner:
    def __init__(self, source: Source, exports: Exports, why: Why, editor: ImportEditor) -> None:
        self.source, self.exports, self.why, self.editor = source, exports, why, editor
        self.use = Use(source)

    def turned(self) -> Use:
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.ImportFrom):
                self._from(node)
            elif isinstance(node, ast.Import):
                self._plain(node)
        return self.use

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
            if node.module == origin.shim.compat:
                self.use.origins[bound] = origin
            elif origin.name:
                self._name(node, alias, origin, moving)
            elif reasons := self._attributes(bound, origin, node.lineno, origin.shim.same_module_name):
                package = origin.shim.compat.rpartition(".")[0]
                moving.setdefault(package, {})[alias.name] = least_safe(reasons)
        for module, names in moving.items():
            self.use.turned = True
            self.editor.move(node, set(names), module, least_safe(names.values()))

    def _name(
        self, node: ast.ImportFrom, alias: ast.alias, origin: Origin, moving: dict[str, dict[str, Reason]]
    ) -> None:
        reason = self._why(origin, origin.name, node.lineno)
        if reason is None:
            return
        self.use.origins[bound_by_import(alias, node)] = origin
        if alias.name == origin.name:  # else the file in between passes it on under another name, and still does
            moving.setdefault(origin.shim.compat, {})[alias.name] = reason

    def _asks_for_something_else(self, node: ast.ImportFrom, name: str) -> None:
        target = self.exports.repository.locate(self.source.path, node.module or "", node.level)
        if target in self.exports.definitions:
            self.use.needs.add((target, name))

    def _star(self, node: ast.ImportFrom) -> None:
        target = self.exports.repository.locate(self.source.path, node.module or "", node.level)
        if target in self.exports.definitions:
            self.use.needs.update((target, name) for name in self.exports.definitions[target].shim.names)

    def _plain(self, node: ast.Import) -> None:
        for alias in node.names:
            origin = self.exports.module(self.source.path, alias.name)
            if origin is None:
                continue
            if not alias.asname:
                self._dotted(node, alias, origin)
            elif reasons := self._attributes(alias.asname, origin, node.lineno):
                self.use.turned = True
                self.editor.rename(node, alias, origin.shim.compat, least_safe(reasons))

    def _dotted(self, node: ast.Import, alias: ast.alias, origin: Origin) -> None:
        """`import a.b.c` and every `a.b.c.name`."""
        top = alias.name.partition(".")[0]
        attributes = (node for node in ast.walk(self.source.tree) if isinstance(node, ast.Attribute))
        inner = [attribute for attribute in attributes if dotted(attribute.value) == alias.name]
        reasons = self._all(origin, [use.attr for use in inner], node.lineno)
        if not reasons:
            return
        reason = least_safe(reasons)
        self.use.turned = True
        for use in inner:
            self.use.origins[dotted(use)] = Origin(origin.shim, use.attr, origin.definition)
            edit = reason.edit(self.source, self.source.span(use.value), origin.shim.compat)
            if edit not in self.use.edits:  # another import of the same module has it already
                self.use.edits.append(edit)
        others = [n for n in ast.walk(self.source.tree) if isinstance(n, ast.Name) and n.id == top]
        bound_again = any(
            bound_by_import(other, n) == top
            for n in ast.walk(self.source.tree)
            if isinstance(n, ast.Import)
            for other in n.names
            if other is not alias
        )
        if len(others) == len(inner) or bound_again:
            self.editor.rename(node, alias, origin.shim.compat, reason)
        else:  # the name of the package is still used
            self.editor.add_beside(node, origin.shim.compat, reason)

    def _attributes(self, bound: str, origin: Origin, line: int, nameable: bool = True) -> list[Reason]:
        """The reasons to move, if every use of a module's name is `module.name` with a name that its shim has."""
        names = [n for n in ast.walk(self.source.tree) if isinstance(n, ast.Name) and n.id == bound]
        uses = {id(n.value): n for n in ast.walk(self.source.tree) if isinstance(n, ast.Attribute)}
        attributes = [uses[id(name)].attr if id(name) in uses else "" for name in names]
        reasons = self._all(origin, attributes, line)
        if not nameable or not reasons:
            for attribute in attributes:
                if origin.definition is not None and attribute:
                    self.use.needs.add((origin.definition.source.path, attribute))
            return []
        for attribute in attributes:
            self.use.origins[f"{bound}.{attribute}"] = Origin(origin.shim, attribute, origin.definition)
        return reasons

    def _all(self, origin: Origin, names: list[str], line: int) -> list[Reason]:
        """The reason of each name; none if one of them stays."""
        found = [self._why(origin, name, line) for name in names]
        reasons = [reason for reason in found if reason is not None]
        return reasons if len(reasons) == len(found) else []

    def _why(self, origin: Origin, name: str, line: int) -> Reason | None:
        """Why a name is turned; one that stays although it has a shim is noted."""
        if name not in origin.shim.names:
            return None
        reason = self.why(origin, name)
        if reason is None:
            if origin.definition is not None:
                self.use.needs.add((origin.definition.source.path, name))
            self.use.left.append((line, name))
        return reason


def dotted(node: ast.AST) -> str:
    """`a.b.c` as text; empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (inner := dotted(node.value)):
        return f"{inner}.{node.attr}"
    return ""
