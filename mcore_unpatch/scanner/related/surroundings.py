"""The lines around a patch that belong to it: where it is backed up, flagged, toggled and taken back."""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, cast

from mcore_unpatch.findings.finding import Related
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Scope, Site, path_text

T = TypeVar("T")

_SHOWN = 40  # lines of one role, those nearest to the patch


class _Place(NamedTuple):
    """Where an attribute of an object is kept: under a local name, or as an attribute of something."""

    attribute: str
    subject: str
    scope: Scope | None
    as_attribute: bool


class Surroundings:
    """Reads and writes of one module, collected once for all its patches."""

    def __init__(self, installs: Sequence[Install], resolver: Resolver) -> None:
        self._resolver, self._last = resolver, len(resolver.lines)
        self._patches = {_line(install) for install in installs}
        self._attributes = {install.attribute for install in installs}
        self._bases = {ast.dump(install.base) for install in installs if install.base is not None}
        self._reads: dict[_Place, list[int]] = {}
        self._data: dict[tuple[str, Scope | None], list[tuple[str, int]]] = {}
        self._lines_of: dict[tuple[str, str], list[int]] = {}
        self._known_flags: dict[tuple[str, Scope | None], tuple[list[int], list[int]]] = {}
        self._constants: dict[str, list[int]] = {}
        if self._patches:
            self._collect()
        for lines in (*self._reads.values(), *self._lines_of.values()):
            lines.sort()

    def related_lines(self, install: Install) -> tuple[Related, ...]:
        """The lines that belong to a patch, by role."""
        here = _line(install)
        restores = [site.node.lineno for site in nearest(install.restores, here, lambda site: site.node.lineno)]
        found = {Related(line, "restore") for line in restores}
        found |= {Related(line, "backup") for line in self._backups(install)}
        flags, toggles = self._flags(install)
        taken = {item.line for item in found}
        found |= {Related(line, "flag") for line in nearest(flags, here, int) if line not in taken}
        found |= {Related(line, "toggle") for line in nearest(toggles, here, int) if line not in taken}
        return tuple(sorted(item for item in found if item.line != here))

    def _collect(self) -> None:
        model = self._resolver.model
        for site in model.sites:
            if isinstance(site.target, ast.Attribute) and site.value is not None:
                self._add_read(site.value, site.scope, site.node.lineno, site.target.attr)
        for site in (*model.sites, *model.calls):
            write = site.written
            if write is not None and _is_mark(write[2]):
                self._add_data(write[0], ast.unparse(write[1]), site)
        for scope in (model.scope, *model.functions.values(), *model.classes.values()):
            for bindings in scope.bindings.values():
                for binding in bindings:
                    if binding.kind == "value" and isinstance(binding.node, ast.expr):
                        self._add_read(binding.node, scope, binding.line, "")

    def _add_read(self, value: ast.expr, scope: Scope, line: int, kept_as: str) -> None:
        subject, name = None, ""
        if isinstance(value, ast.Attribute):
            subject, name = value.value, value.attr
        elif isinstance(value, ast.Call) and path_text(value.func) == "getattr" and len(value.args) >= 2:
            if isinstance(value.args[1], ast.Constant) and isinstance(value.args[1].value, str):
                subject, name = value.args[0], value.args[1].value
        if subject is None or name not in self._attributes or kept_as == name:
            return
        # What an attribute holds is seen in its whole function, a local where it stands and below.
        home = (None if scope.kind == "module" else scope.function) if kept_as else scope
        for text in (ast.dump(subject), ""):  # "": for a patch of which the object is not known
            self._reads.setdefault(_Place(name, text, home, bool(kept_as)), []).append(line)

    def _add_data(self, subject: ast.expr, name: str, site: Site) -> None:
        """A mark on an object: `obj.flag = True`, `setattr(obj, "flag", True)`."""
        text, line = ast.dump(subject), site.node.lineno
        if line not in self._patches and text in self._bases:
            self._data.setdefault((text, site.scope.function), []).append((name, line))
            self._lines_of.setdefault((text, name), []).append(line)

    def _backups(self, install: Install) -> set[int]:
        """Lines that keep the attribute a patch replaces, read from the same object."""
        base = ast.dump(install.base) if install.base is not None else ""
        name, scope = install.attribute, install.site.scope
        places = [_Place(name, base, home, True) for home in {None, scope.function}]
        places += [_Place(name, base, home, False) for home in {*scope.outwards(), self._resolver.model.scope}]
        lines = [self._reads[place] for place in places if place in self._reads]
        return {line for some in lines for line in nearest(some, _line(install), int)}

    def _flags(self, install: Install) -> tuple[list[int], list[int]]:
        """Lines that note on the patched object, or in a global, that the patch is on; and where else they are set."""
        if install.base is None:
            return [], []
        function = install.site.scope.function
        base = ast.dump(install.base)
        if (base, function) not in self._known_flags:
            written = self._data.get((base, function), [])
            here = {line for _, line in written}
            node = cast("FunctionNode", function.node) if function is not None else None
            first, last = (node.lineno, node.end_lineno or 0) if node is not None else (0, self._last)
            toggled = [(self._lines_of[base, name], 0) for name in {name for name, _ in written}]
            for name in function.globals if function is not None else ():
                lines = self._constant_lines(name)
                if inside := lines[bisect_left(lines, first) : bisect_right(lines, last)]:
                    here.update(inside)
                    toggled.append((lines, 1))
            # Those outside of the function are shown as far as they are near, however many there are.
            toggles = {
                line
                for lines, start in toggled
                for line in lines[
                    max(start, bisect_left(lines, first) - _SHOWN // 2) : bisect_right(lines, last) + _SHOWN // 2
                ]
            }
            self._resolver.project.effort.spend(len(here) + len(toggles))
            self._known_flags[base, function] = sorted(here), sorted(toggles - here)
        return self._known_flags[base, function]

    def _constant_lines(self, name: str) -> list[int]:
        """Where a global gets a constant; none of what holds other values too, or nothing but None."""
        if name not in self._constants:
            bindings = self._resolver.model.scope.bindings.get(name, [])
            nodes = [binding.node for binding in bindings if isinstance(binding.node, ast.Constant)]
            is_flag = len(nodes) == len(bindings) and any(map(_is_mark, nodes))
            self._constants[name] = [binding.line for binding in bindings] if is_flag else []
        return self._constants[name]


def _is_mark(value: ast.expr) -> bool:
    """A constant that says something is so, and is no value to compute with."""
    return isinstance(value, ast.Constant) and value.value is not None and not isinstance(value.value, float)


def nearest(places: Sequence[T], line: int, line_of: Callable[[T], int]) -> Sequence[T]:
    """The places nearest to a line, of which there may be very many; they are sorted by their lines."""
    index = bisect_left(places, line, key=line_of)
    return places[max(0, index - _SHOWN // 2) : index + _SHOWN // 2]


def _line(install: Install) -> int:
    return install.node.lineno  # type: ignore[attr-defined,no-any-return]
