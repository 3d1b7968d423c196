"""Which findings `unpatch migrate` would take away: asked of the codemods themselves."""

from __future__ import annotations

from dataclasses import replace

from mcore_unpatch.discover import Discovery
from mcore_unpatch.findings import Finding
from mcore_unpatch.requirements import Pins
from mcore_unpatch.scanner.engine import WorkTree

_NEVER = {"none", "value-head"}


def mark(findings: list[Finding], found: Discovery, whole: Discovery, pins: Pins) -> list[Finding]:
    """The findings with `fix` set: `safe`, `unsafe`, or None where a person has to do it.

    `found` are the files that were scanned, `whole` those of the repository around them.
    """
    if all(finding.seam in _NEVER for finding in findings):
        return findings
    from mcore_unpatch.codemods.edits import Options, Repository
    from mcore_unpatch.codemods.planner import removals

    fixes: dict[Finding, str] = {}
    tree, version = WorkTree(found.top), pins.target_for(finding.path for finding in findings)
    repository = Repository(whole.own, tree.exists, tree.read, found.own)
    choices = [Options(unsafe_fixes=unsafe, target=version) for unsafe in (True, False)]
    for name, removed in zip(("unsafe", "safe"), removals(repository, findings, choices), strict=True):
        fixes.update(dict.fromkeys(removed, name))
    return [replace(finding, fix=fixes.get(finding)) for finding in findings]
