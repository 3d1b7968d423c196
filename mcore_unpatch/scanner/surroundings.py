"""The lines around a patch that belong to it: where it is backed up, flagged, toggled and taken back."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from mcore_unpatch.findings import Related
from mcore_unpatch.scanner.installs import Install
from mcore_unpatch.scanner.resolve import Resolver
from mcore_unpatch.scanner.scopes import Scope, Site, path_text


class _Read(NamedTuple):
    """`kept = subject.attribute`, or the same kept as an attribute of something."""

    scope: Scope
    line: int
    subject: ast.expr
    kept_as_attribute: str


class Surroundings:
    """Reads and writes of one module, collected once for all its patches."""

    def __init__(self, installs: Iterable[Install], resolver: Resolver) -> None:
        self._resolver = resolver
        self._patches = {_line(install) for install in installs}
        self._reads: dict[str, list[_Read]] = {}
        self._data: dict[str, list[tuple[str, Site]]] = {}
        if self._patches:
            self._collect()

    def related_lines(self, install: Install) -> tuple[Related, ...]:
        """The lines that belong to a patch, by role."""
        found = {Related(site.node.lineno, "restore") for site in install.restores}
        found |= {Related(line, "backup") for line in self._backups(install)}
        flags, toggles = self._flags(install)
        taken = {item.line for item in found}
        found |= {Related(line, "flag") for line in flags - taken}
        found |= {Related(line, "toggle") for line in toggles - taken - flags}
        return tuple(sorted(item for item in found if item.line != _line(install)))

    def _collect(self) -> None:
        model = self._resolver.model
        for site in model.sites:
            if isinstance(site.target, ast.Attribute) and site.value is not None:
                self._add_read(site.value, site.scope, site.node.lineno, site.target.attr)
                if isinstance(site.value, ast.Constant | ast.Name) and not self._names_function(site.value, site):
                    self._add_data(site.target.value, site.target.attr, site)
        for site in model.calls:
            call = site.node
            if isinstance(call, ast.Call) and path_text(call.func) == "setattr" and len(call.args) == 3:
                if isinstance(call.args[2], ast.Constant):
                    self._add_data(call.args[0], ast.unparse(call.args[1]), site)
        for scope in (model.scope, *model.functions.values(), *model.classes.values()):
            for bindings in scope.bindings.values():
                for binding in bindings:
                    if binding.kind == "value" and isinstance(binding.node, ast.expr):
                        self._add_read(binding.node, scope, binding.line, "")

    def _add_read(self, value: ast.expr, scope: Scope, line: int, kept_as: str) -> None:
        if isinstance(value, ast.Attribute):
            self._reads.setdefault(value.attr, []).append(_Read(scope, line, value.value, kept_as))
        elif isinstance(value, ast.Call) and path_text(value.func) == "getattr" and len(value.args) >= 2:
            name = value.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                self._reads.setdefault(name.value, []).append(_Read(scope, line, value.args[0], kept_as))

    def _add_data(self, subject: ast.expr, name: str, site: Site) -> None:
        """Plain data written to an object: `obj.flag = True`, `setattr(obj, "flag", True)`."""
        if site.node.lineno not in self._patches:
            self._data.setdefault(ast.dump(subject), []).append((name, site))

    def _names_function(self, value: ast.expr, site: Site) -> bool:
        if isinstance(value, ast.Constant):
            return False
        ref = self._resolver.expr(value, site.scope, site.block, site.node.lineno)
        return ref is not None and ref.kind in {"local-function", "function", "class"}

    def _backups(self, install: Install) -> set[int]:
        """Lines that keep the attribute a patch replaces, read from the same object."""
        base = ast.dump(install.base) if install.base is not None else None
        function = install.site.scope.function
        around = set(_with_parents(install.site.scope)) | {self._resolver.model.scope}
        lines = set()
        for read in self._reads.get(install.attribute, []):
            if read.kept_as_attribute:
                near = read.scope.kind == "module" or read.scope.function is function
            else:
                near = read.scope in around
            if near and read.kept_as_attribute != install.attribute:
                if base is None or ast.dump(read.subject) == base:
                    lines.add(read.line)
        return lines

    def _flags(self, install: Install) -> tuple[set[int], set[int]]:
        """Lines that note on the patched object, or in a global, that the patch is on; and where else they are set."""
        if install.base is None:
            return set(), set()
        function = install.site.scope.function
        here: set[int] = set()
        elsewhere: dict[str, set[int]] = {}
        names: set[str] = set()
        for name, site in self._data.get(ast.dump(install.base), []):
            if site.scope.function is function:
                here.add(site.node.lineno)
                names.add(name)
            else:
                elsewhere.setdefault(name, set()).add(site.node.lineno)
        for name in function.globals if function is not None else ():
            lines = self._constant_lines(name)
            inside = {line for line in lines if function is not None and _spans(function.node, line)}
            if inside:
                here |= inside
                names.add(name)
                elsewhere.setdefault(name, set()).update(lines - inside - {min(lines)})
        return here, set().union(*(elsewhere.get(name, set()) for name in names))

    def _constant_lines(self, name: str) -> set[int]:
        """Where a global gets a constant."""
        bindings = self._resolver.model.scope.bindings.get(name, [])
        return {binding.line for binding in bindings if isinstance(binding.node, ast.Constant)}


def _line(install: Install) -> int:
    return install.node.lineno  # type: ignore[attr-defined,no-any-return]


def _spans(node: ast.AST, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0)  # type: ignore[attr-defined,no-any-return]


def _with_parents(scope: Scope | None) -> Iterable[Scope]:
    while scope is not None:
        yield scope
        scope = scope.parent
