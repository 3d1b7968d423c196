"""The lines around a patch that belong to it: where it is backed up and taken back."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from mcore_unpatch.findings.finding import Related
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.scopes import Scope, path_text

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
        self._module = resolver.model.scope
        self._attributes = {install.attribute for install in installs}
        self._reads: dict[_Place, list[int]] = {}
        model = resolver.model
        for site in model.sites:
            if isinstance(site.target, ast.Attribute) and site.value is not None:
                self._add_read(site.value, site.scope, site.node.lineno, site.target.attr)
        for scope in (model.scope, *model.functions.values(), *model.classes.values()):
            for bindings in scope.bindings.values():
                for binding in bindings:
                    if binding.kind == "value" and isinstance(binding.node, ast.expr):
                        self._add_read(binding.node, scope, binding.line, "")
        for lines in self._reads.values():
            lines.sort()

    def related_lines(self, install: Install) -> tuple[Related, ...]:
        """The lines that belong to a patch, by role."""
        here = _line(install)
        restores = [site.node.lineno for site in nearest(install.restores, here, lambda site: site.node.lineno)]
        found = {Related(line, "restore") for line in restores}
        found |= {Related(line, "backup") for line in self._backups(install)}
        return tuple(sorted(item for item in found if item.line != here))

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

    def _backups(self, install: Install) -> set[int]:
        """Lines that keep the attribute a patch replaces, read from the same object."""
        base = ast.dump(install.base) if install.base is not None else ""
        name, scope = install.attribute, install.site.scope
        places = [_Place(name, base, home, True) for home in {None, scope.function}]
        places += [_Place(name, base, home, False) for home in {*scope.outwards(), self._module}]
        lines = [self._reads[place] for place in places if place in self._reads]
        return {line for some in lines for line in nearest(some, _line(install), int)}


def nearest(places: Sequence[T], line: int, line_of: Callable[[T], int]) -> Sequence[T]:
    """The places nearest to a line, of which there may be very many; they are sorted by their lines."""
    index = bisect_left(places, line, key=line_of)
    return places[max(0, index - _SHOWN // 2) : index + _SHOWN // 2]


def _line(install: Install) -> int:
    return install.node.lineno  # type: ignore[attr-defined,no-any-return]
