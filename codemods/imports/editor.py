"""What is to become of one file's imports: names that move to another module, go, or come anew."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property

from mcore_unpatch.codemods.changes import Reason
from mcore_unpatch.codemods.imports.blocks import Import
from mcore_unpatch.codemods.imports.entries import Entry, entries
from mcore_unpatch.codemods.imports.limits import line_limit
from mcore_unpatch.codemods.source import Files, Source, Suite


@dataclass
class Target:
    """What one suite is to import from one module."""

    suite: Suite
    module: str
    names: list[Entry] = field(default_factory=list)
    sources: list[ast.ImportFrom] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)

    @property
    def existing(self) -> ast.ImportFrom | None:
        """The statement that imports from the module already."""
        froms = (node for node in self.suite if isinstance(node, ast.ImportFrom) and not node.level)
        return next((node for node in froms if node.module == self.module), None)


class ImportEditor:
    """Collects what is asked for, by whomever; `arrange` makes edits of all of it at once."""

    def __init__(self, source: Source, files: Files) -> None:
        self.source, self.files = source, files
        self.leaving: dict[Import, set[str]] = {}
        self.targets: dict[tuple[int, str], Target] = {}
        self.renamed: list[tuple[ast.Import, ast.alias, str]] = []
        self.beside: list[tuple[ast.Import, str]] = []
        self.reasons: dict[Import, list[Reason]] = {}  # why a statement changes

    def move(self, node: ast.ImportFrom, names: set[str], module: str, reason: Reason) -> None:
        """Take names (as the statement writes them) from a statement and import them from `module` instead."""
        self.drop(node, names, reason)
        target = self._target(self.source.home[id(node)], module)
        target.sources.append(node)
        target.names += [entry for entry in entries(self.source, node) if entry.name in names]
        target.reasons.append(reason)

    def drop(self, node: Import, names: set[str], reason: Reason) -> None:
        """Take names away."""
        self.leaving.setdefault(node, set()).update(names)
        self.reasons.setdefault(node, []).append(reason)

    def rename(self, node: ast.Import, alias: ast.alias, module: str, reason: Reason) -> None:
        """Another module for one part of `import a, b as c`."""
        self.renamed.append((node, alias, module))
        self.reasons.setdefault(node, []).append(reason)

    def add_beside(self, node: ast.Import, module: str, reason: Reason) -> None:
        """`import module` in the same suite as another import."""
        self.beside.append((node, module))
        self.reasons.setdefault(node, []).append(reason)

    def add(self, module: str, names: list[str], reason: Reason, *, unused: bool = False) -> None:
        """Import names from `module` at the top of the file; `unused` ones are there for others to import."""
        behind = "# noqa: F401" if unused else ""
        target = self._target(self.source.tree.body, module)
        target.names += [Entry(name, behind=behind) for name in names]
        target.reasons.append(reason)

    def _target(self, suite: Suite, module: str) -> Target:
        return self.targets.setdefault((id(suite), module), Target(suite, module))

    @cached_property
    def limit(self) -> int:
        """The longest line of this file."""
        return line_limit(self.source, self.files)

    def left(self, node: Import) -> list[ast.alias]:
        """The names that stay in a statement."""
        return [alias for alias in node.names if alias.name not in self.leaving.get(node, set())]

    def moving(self) -> dict[Import, str]:
        """Statements that name another module as a whole, and which: the first, where their names go to several."""
        found: dict[Import, str] = {}
        for target in self.in_order():
            if target.sources and target.existing is None and not self.left(target.sources[0]):
                found.setdefault(target.sources[0], target.module)
        return found | {node: module for node, _, module in self.renamed if len(node.names) == 1}

    def in_order(self) -> list[Target]:
        """The targets by module."""
        return sorted(self.targets.values(), key=lambda target: target.module)
