"""Which findings `unpatch migrate` would do something about: asked of the codemods themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from mcore_unpatch.discover import Discovery
from mcore_unpatch.findings import Finding
from mcore_unpatch.requirements import Requirements
from mcore_unpatch.rules import Selection
from mcore_unpatch.scanner.parallel import WorkTree

if TYPE_CHECKING:
    from mcore_unpatch.codemods.edits import Repository

_ODD = re.compile(rb"\f|\r(?!\n)")  # without these, libcst gives a file back as it was


def mark(
    findings: list[Finding],
    elsewhere: Iterable[Finding],
    found: Discovery,
    whole: Discovery,
    pins: Requirements,
    chosen: Selection,
) -> list[Finding]:
    """The findings with `fix` set: `safe`, `unsafe`, or None where a person has to do it.

    `found` are the files that were scanned, `whole` those of the repository around them, with findings `elsewhere`.
    """
    from mcore_unpatch.codemods.edits import Options, Repository
    from mcore_unpatch.codemods.planner import fixed

    tree, version = WorkTree(found.top), pins.target_for(finding.path for finding in findings)
    choices = [
        Options(unsafe_fixes=unsafe, selection=chosen, target=version, pinned=pins.pinned) for unsafe in (True, False)
    ]
    editable = frozenset(found.own)
    while True:
        repository = Repository(whole.own, tree.exists, tree.read, editable)
        fixes: dict[Finding, str] = {}
        for name, ones in zip(("unsafe", "safe"), fixed(repository, [*findings, *elsewhere], choices), strict=True):
            fixes.update(dict.fromkeys(ones, name))
        broken = _left(repository, {finding.path for finding in fixes if finding.path in editable})
        if not broken:
            return [replace(finding, fix=fixes.get(finding)) for finding in findings]
        editable -= broken


def _left(repository: Repository, paths: Iterable[str]) -> set[str]:
    """The files that `migrate` leaves, because they do not compile as they are or libcst does not give them back."""
    from mcore_unpatch.migrate.verify import why_not

    python = [path for path in paths if path.endswith(".py")]
    broken = {path for path in python if why_not(repository.data(path), path)}
    odd = [path for path in python if path not in broken and _ODD.search(repository.data(path))]
    if odd:
        from mcore_unpatch.codemods.cst_tree import Tree, Unfaithful

        for path in odd:
            try:
                Tree(repository.source(path))
            except Unfaithful:
                broken.add(path)
    return broken
