"""The one way from the tool to its codemods: what they find, what they would do, and the plan of a migration.

Codemods stand above the scanner and the findings, and import both. Nothing of the tool imports them but this module,
and it does so when it is asked: a scan that has nothing for them loads none of what a migration needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcore_unpatch.codemods.codemod import Codemod
    from mcore_unpatch.editing.edits import Options, Plan, Repository
    from mcore_unpatch.findings.finding import Finding
    from mcore_unpatch.scanner.parallel import ScannedPart, Task
    from mcore_unpatch.scanner.sources.parsed import Parsed


def codemods() -> tuple[Codemod, ...]:
    """Every codemod, those of other packages included; raises `UsageError` for one that cannot be used."""
    from mcore_unpatch.codemods import registry

    return registry.codemods()


def folders() -> list[Path]:
    """Where the code of this package's own codemods is."""
    import mcore_unpatch.codemods as package

    return [Path(folder) for folder in package.__path__]


def answered() -> frozenset[str]:
    """The rules of the scanner that some codemod says it has changes for."""
    from mcore_unpatch.codemods import registry

    return registry.answered()


def words(wanted: Callable[[str], bool]) -> tuple[bytes, ...]:
    """A file without one of these has nothing that a codemod finds itself."""
    from mcore_unpatch.codemods import registry

    return registry.words(wanted)


def complete(part: ScannedPart, task: Task, parsed: Parsed, wanted: Callable[[str], bool]) -> None:
    """Add what the codemods find to what the scanner found."""
    from mcore_unpatch.codemods import registry

    registry.complete(part, task, parsed, wanted)


def plan(repository: Repository, findings: Sequence[Finding], options: Options) -> Plan:
    """What is to be done about the findings of a repository."""
    from mcore_unpatch.codemods import planner

    return planner.plan(repository, findings, options)


def fixed(
    repository: Repository, findings: Sequence[Finding], choices: Sequence[Options]
) -> Iterator[tuple[set[Finding], dict[Finding, str]]]:
    """The findings that a plan takes away, for each of some options, and why others are left."""
    from mcore_unpatch.codemods import planner

    return planner.fixed(repository, findings, choices)


def not_given_back(repository: Repository, paths: Iterable[str]) -> set[str]:
    """The files that libcst does not give back as they are, and that no migration may touch."""
    from mcore_unpatch.codemods.cst_tree import Tree, Unfaithful

    broken = set()
    for path in paths:
        try:
            Tree(repository.source(path))
        except Unfaithful:
            broken.add(path)
    return broken
