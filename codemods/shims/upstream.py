"""A file of the downstream that defines what a shim replaces, and what of it is upstream's."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mcore_unpatch.codemods.fingerprints.hashes import fingerprint, load, origins
from mcore_unpatch.codemods.shims.contract import Contract, Shim
from mcore_unpatch.codemods.syntax import body_of, bound_by_import, dotted
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Source
from mcore_unpatch.library.digests import dump

_NAME = re.compile(r"Name\(id='(\w+)'\)")
_BLOCKS = ast.If | ast.Try | ast.With | ast.For | ast.While | ast.ExceptHandler


@dataclass(frozen=True, eq=False)
class Unit:
    """One top-level statement."""

    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]

    @property
    def key(self) -> str:
        """What fingerprints call it: the names it binds."""
        return ", ".join(sorted(self.binds))

    @cached_property
    def runs_on(self) -> frozenset[str]:
        """The names it uses for more than annotations, which fingerprints leave out."""
        return self.uses.intersection(_NAME.findall(dump(self.node, "")))

    @property
    def is_import(self) -> bool:
        """Whether it is a plain import statement."""
        return isinstance(self.node, ast.Import | ast.ImportFrom)


def units(tree: ast.Module) -> list[Unit]:
    """The top-level statements of a module, in order."""
    return [Unit(node, frozenset(_bound(node)), frozenset(_used(node))) for node in tree.body]


def reached(start: Iterable[Unit], among: Iterable[Unit], *, running: bool = False) -> list[Unit]:
    """The units that `start` leads to by the names they use or run on, itself included, in the order of the file."""
    everything = list(among)
    binding: defaultdict[str, list[Unit]] = defaultdict(list)
    for unit in everything:
        for name in unit.binds:
            binding[name].append(unit)
    names = set(start)
    waiting = list(names)
    while waiting:
        unit = waiting.pop()
        for name in unit.runs_on if running else unit.uses:
            new = set(binding.pop(name, ())) - names
            names |= new
            waiting += new
    return [unit for unit in everything if unit in names]


def helping(names: Iterable[str], among: Sequence[Unit]) -> list[Unit]:
    """The definitions in a file of helpers that some of its names lead to; all of them if it has none of the names."""
    start = [unit for unit in among if unit.binds.intersection(names)] or among
    return [unit for unit in reached(start, among, running=True) if unit.binds and not unit.is_import]


@dataclass(eq=False)
class Definition:
    """One such file."""

    contract: Contract
    shim: Shim
    source: Source
    files: Repository
    _ours: dict[Unit, bool] = field(default_factory=dict, init=False)  # whether it is upstream's

    @cached_property
    def units(self) -> list[Unit]:
        """Its statements."""
        return units(self.source.tree)

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name of the module."""
        return frozenset().union(*(unit.binds for unit in self.units))

    @cached_property
    def defined(self) -> dict[str, Unit]:
        """The shim's names that this file still defines itself."""
        own = [unit for unit in self.units if not unit.is_import and not self._hands_over(unit.node)]
        return {name: unit for unit in own for name in unit.binds if name in self.shim.names}

    def _hands_over(self, node: ast.stmt) -> bool:
        """Whether a function asks first whether the shim is there, and returns what that returns."""
        first = next(iter(body_of(node)), None) if isinstance(node, ast.FunctionDef) else None
        last = (first.body if isinstance(first, ast.If) else [first])[-1]
        if not (isinstance(last, ast.Return) and isinstance(last.value, ast.Call)):
            return False
        imports = self.source.every(ast.ImportFrom)
        shims = (one for at in imports for one in at.names if f"{at.module}.{one.name}" == self.shim.compat)
        return dotted(last.value.func) in {f"{one.asname or one.name}.{getattr(node, 'name', '')}" for one in shims}

    @property
    def package(self) -> str:
        """What this copy of the downstream calls its package."""
        return self.contract.package_of(self.source.path, self.shim)

    def closure(self, rule: str) -> list[Unit]:
        """All that the functions of a rule lead to."""
        own = [unit for name, unit in self.defined.items() if self.shim.names[name] == rule]
        return reached(own, self.units)

    def changed(self, name: str) -> list[str]:
        """What of a name's function, or of what it calls, is not upstream's."""
        closure = reached([self.defined[name]], self.units, running=True)
        known = load(self.contract.package)
        used = frozenset().union(*(unit.runs_on for unit in closure if not unit.is_import))
        compared = [(self.shim.file, unit) for unit in closure if not unit.is_import]
        for file, names in self.contract.helpers.items():  # the shim brings its own of these
            if (wanted := used.intersection(names)) and file in self._helpers:
                compared += [(file, unit) for unit in helping(wanted, self._helpers[file])]
        for file, unit in compared:
            if unit not in self._ours:  # several names lead to it
                self._ours[unit] = known.has(file, unit.key, fingerprint(unit.node, self.package))
        # And names that upstream imports too, but from somewhere else.
        hashes, imports = origins(self.source.tree, self.package, self.shim.file), set[str]()
        for unit in closure:
            imports |= unit.binds & used if unit.is_import else set()
        foreign = [
            name
            for name in sorted(imports)
            if known.knows(file := self.shim.file, of := f"import {name}")
            and not known.has(file, of, hashes.get(name, ""))
        ]
        return [unit.key for _, unit in compared if not self._ours[unit]] + foreign

    @cached_property
    def _helpers(self) -> dict[str, list[Unit]]:
        """The statements of the files with the downstream's helpers."""
        above = self.source.path.removesuffix(self.shim.file)
        paths = {file: above + file for file in self.contract.helpers if above != self.source.path}
        found = {file: self.files.readable(path) for file, path in paths.items() if self.files.exists(path)}
        return {file: units(source.tree) for file, source in found.items() if source}


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (bound_by_import(alias, node) for alias in node.names)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))
    elif isinstance(node, _BLOCKS):
        for child in ast.iter_child_nodes(node):
            yield from _bound(child)


def _used(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
            yield child.id
        elif isinstance(child, ast.Global):
            yield from child.names
        elif isinstance(child, ast.Constant) and isinstance(child.value, str) and child.value.isidentifier():
            yield child.value  # "GPTModel" as an annotation, or a name in `__all__`
        elif isinstance(child, ast.AugAssign) and isinstance(child.target, ast.Name):
            yield child.target.id
