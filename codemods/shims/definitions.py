"""A file of the downstream that defines what a shim replaces: which of its names may go, and the file without them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from mcore_unpatch.codemods.changes import Asked, Insert, Reason, below
from mcore_unpatch.codemods.fingerprints.compare import Difference, Fingerprints, fingerprint, load, origins
from mcore_unpatch.codemods.imports.editor import ImportEditor
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.shims.contract import Contract, Shim
from mcore_unpatch.codemods.syntax import bound_by_import
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Source, last_line
from mcore_unpatch.library.digests import dump
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
        own = [unit for unit in self.units if not unit.is_import]
        return {name: unit for unit in own for name in unit.binds if name in self.shim.names}

    @cached_property
    def from_shim(self) -> frozenset[str]:
        """The names that this file has from the shim already."""
        imports = [unit.node for unit in self.units if isinstance(unit.node, ast.ImportFrom)]
        return frozenset(
            bound_by_import(alias, node) for node in imports if node.module == self.shim.compat for alias in node.names
        )

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

    def without(
        self,
        names: Iterable[str],
        exported: Iterable[str],
        needed: frozenset[str],
        reached: frozenset[str],
        reason: Reason,
        editor: ImportEditor,
    ) -> tuple[list[Asked], list[tuple[int, int]]]:
        """The file without the code of `names`, and the lines where that was; imports go by themselves.

        `exported` names the shim gives, `needed` ones are used elsewhere. What only tests have `reached` here
        goes: they are told.
        """
        gone = self._gone(frozenset(names), needed)
        kept = [unit for unit in self.units if unit not in gone]
        given = sorted(exported)
        if given:
            editor.add(self.shim.compat, given, reason, unused=not self.contract.keeps_names)
        rules: dict[ast.AST, str] = {unit.node: self.shim.names.get(unit.key, reason.rule) for unit in gone}
        asked = [
            Asked(self.source, change, replace(reason, rule=rules.get(change.node, reason.rule)))
            for change in remove(self.source, [unit.node for unit in gone])
        ]
        for_tests = self._only_reached(kept, reached - needed)
        for unit in kept:
            if isinstance(unit.node, ast.Import | ast.ImportFrom):
                own = {alias.name for alias in unit.node.names if bound_by_import(alias, unit.node) in for_tests}
                if own:
                    editor.drop(unit.node, own, reason)
        if given and self.contract.keeps_names and not any("__all__" in unit.binds for unit in kept):
            asked.append(self._all([*given, *self._only_reached(kept, needed)], kept, reason))
        return asked, [(unit.node.lineno, last_line(unit.node)) for unit in gone]

    def _gone(self, names: frozenset[str], needed: frozenset[str]) -> set[Unit]:
        """The definitions of the names, and the private code that nothing else needs any more."""
        gone = {unit for name, unit in self.defined.items() if name in names}
        waiting = [unit for unit in reached(gone, self.units) if not unit.is_import and unit not in gone]
        while True:
            still_used = needed.union(*(unit.uses for unit in self.units if unit not in gone and unit not in waiting))
            back = [unit for unit in waiting if unit.binds & still_used or not _is_private(unit)]
            if not back:
                return gone | set(waiting)
            waiting = [unit for unit in waiting if unit not in back]

    def _only_reached(self, kept: list[Unit], needed: frozenset[str]) -> set[str]:
        """Imported names that only other files ask this one for: a linter takes them for unused."""
        imported = frozenset().union(*(unit.binds for unit in kept if unit.is_import))
        used = frozenset().union(*(unit.uses for unit in kept if not unit.is_import))
        return {name for name in imported & needed - used if not name.startswith("_")}

    def _all(self, exported: list[str], kept: list[Unit], reason: Reason) -> Asked:
        own = [name for unit in kept if not unit.is_import for name in unit.binds if not name.startswith("_")]
        names = sorted({*exported, *own})
        quoted = [f'"{name}"' for name in names]
        text = f"__all__ = [{', '.join(quoted)}]"
        if len(text) > 88:
            text = "\n".join(["__all__ = [", *(f"    {name}," for name in quoted), "]"])
        imports = [node for unit in kept if _imports(node := unit.node)]
        imports = imports or [unit.node for unit in self.units if unit.is_import]
        place = below(imports[-1], f"\n{text}") if imports else Insert(self.units[0].node, 1, text)
        return Asked(self.source, place, reason)


def _imports(node: ast.stmt) -> bool:
    """Whether a statement does nothing but import, or tries to and notes what came of it."""
    if isinstance(node, ast.Try):
        return any(map(_imports, node.body))
    return all(
        isinstance(one, ast.Import | ast.ImportFrom) for one in (node.body if isinstance(node, ast.If) else [node])
    )


def _is_private(unit: Unit) -> bool:
    """Whether nobody outside can rely on a statement: its names are private, or imported inside it."""
    inside = {
        bound_by_import(alias, node)
        for node in walk(unit.node)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return all(name.startswith("_") or name in inside for name in unit.binds) and bool(unit.binds)


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
