"""Which findings `unpatch migrate` would take away: asked of the codemods themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mcore_unpatch.findings import Finding
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.scanner.project import Reader

_NEVER = {"none", "value-head"}


def mark(
    findings: list[Finding], paths: Sequence[str], read: Reader, exists: Callable[[str], bool], version: Version
) -> list[Finding]:
    """The findings with `fix` set: `safe`, `unsafe`, or None where a person has to do it. `paths` may be edited."""
    if all(finding.seam in _NEVER for finding in findings):
        return findings
    from mcore_unpatch.codemods.edits import Options, Repository
    from mcore_unpatch.codemods.planner import plan

    fixes: dict[Finding, str] = {}
    repository = Repository(paths, exists, read)
    for unsafe, name in ((True, "unsafe"), (False, "safe")):
        for finding in plan(repository, findings, Options(unsafe_fixes=unsafe, target=version)).removes:
            fixes[finding] = name
    return [replace(finding, fix=fixes.get(finding)) for finding in findings]
