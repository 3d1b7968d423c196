"""A file of the downstream that defines what a shim replaces: what of it is upstream's. It is never edited."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mcore_unpatch.codemods.fingerprints.compare import Difference, Fingerprints, fingerprint, load, origins
from mcore_unpatch.codemods.shims.contract import Contract, Shim
from mcore_unpatch.codemods.syntax import body_of, bound_by_import
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Source
from mcore_unpatch.library.digests import dump
from mcore_unpatch.library.syntax import dotted
from mcore_unpatch.scanner.sources.nodes import walk

_NAME = re.compile(r"Name\(id='(\w+)'\)")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)


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
    _compared: dict[Unit, Difference | None] = field(default_factory=dict, init=False)

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

    @cached_property
    def from_shim(self) -> frozenset[str]:
        """The names that this file has from the shim already."""
        imports = [unit.node for unit in self.units if isinstance(unit.node, ast.ImportFrom)]
        own = [bound_by_import(one, node) for node in imports if node.module == self.shim.compat for one in node.names]
        return frozenset([*own, *(name for unit in self.units if self._hands_over(unit.node) for name in unit.binds)])

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

    def changed(self, name: str) -> list[Difference]:
        """What somebody changed in a name's function or in what it calls; empty if all of it is upstream's."""
        if name not in self.defined:
            return []
        closure = reached([self.defined[name]], self.units, running=True)
        known = load(self.contract.package)
        used = frozenset().union(*(unit.runs_on for unit in closure if not unit.is_import))
        compared = [(self.shim.file, self.source, unit) for unit in closure if not unit.is_import]
        for file, names in self.contract.helpers.items():  # the shim brings its own of these
            if (wanted := used.intersection(names)) and file in self._helpers:
                source, own = self._helpers[file]
                compared += [(file, source, unit) for unit in helping(wanted, own)]
        for file, source, unit in compared:
            if unit not in self._compared:  # several names lead to it
                ours = known.has(file, unit.key, fingerprint(unit.node, self.package))
                difference = None if ours else known.difference(file, unit.key, unit.node, self.package, source)
                self._compared[unit] = difference
        differing = [part for _, _, unit in compared if (part := self._compared[unit])]
        return differing + self._foreign_imports(closure, used, known)

    def _foreign_imports(self, closure: list[Unit], used: frozenset[str], known: Fingerprints) -> list[Difference]:
        """Names that upstream imports too, but from somewhere else."""
        hashes, path = origins(self.source.tree, self.package, self.shim.file), self.source.path
        foreign = []
        for unit in closure:
            for name in sorted(unit.binds & used) if unit.is_import else ():
                about = (self.shim.file, f"import {name}")
                if known.knows(*about) and not known.has(*about, hashes.get(name, "")):
                    line = unit.node.lineno
                    text = (
                        f"--- {known.project}: `{name}` comes from elsewhere\n+++ {path}\n+{self.source.line(line)}\n"
                    )
                    own = not known.imports(self.shim.file, unit.node, self.package)
                    foreign.append(Difference(path, name, line, known.releases[-1], 1, text, own))
        return foreign

    @cached_property
    def _helpers(self) -> dict[str, tuple[Source, list[Unit]]]:
        """The files with the downstream's helpers, and their statements."""
        above = self.source.path.removesuffix(self.shim.file)
        paths = {file: above + file for file in self.contract.helpers if above != self.source.path}
        found = {file: self.files.readable(path) for file, path in paths.items() if self.files.exists(path)}
        return {file: (source, units(source.tree)) for file, source in found.items() if source}


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (bound_by_import(alias, node) for alias in node.names)
    elif isinstance(node, _DEFINITIONS):
        yield node.name
    elif isinstance(node, _ASSIGNMENTS):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (name.id for name in walk(target) if isinstance(name, ast.Name))
    elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While | ast.ExceptHandler):
        for child in ast.iter_child_nodes(node):
            yield from _bound(child)


def _used(node: ast.AST) -> Iterator[str]:
    for child in walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
            yield child.id
        elif isinstance(child, ast.Global):
            yield from child.names
        elif isinstance(child, ast.Constant) and isinstance(child.value, str) and child.value.isidentifier():
            yield child.value  # "GPTModel" as an annotation, or a name in `__all__`
        elif isinstance(child, ast.AugAssign) and isinstance(child.target, ast.Name):
            yield child.target.id
