"""Which findings `unpatch migrate` would take away: asked of the codemods themselves, for the files with findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mcore_unpatch.findings import Finding
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.scanner.project import Reader

_NEVER = {"none", "value-head"}


def mark(findings: list[Finding], read: Reader, exists: Callable[[str], bool], version: Version) -> list[Finding]:
    """The findings with `fix` set: `safe`, `unsafe`, or None where a person has to do it."""
    if all(finding.seam in _NEVER for finding in findings):
        return findings
    from mcore_unpatch.codemods.edits import Options, Repository
    from mcore_unpatch.codemods.planner import plan

    paths = sorted({finding.path for finding in findings if finding.path.endswith(".py")})
    fixes: dict[Finding, str] = {}
    for unsafe, name in ((True, "unsafe"), (False, "safe")):
        repository = Repository(paths, exists, read)
        for finding in plan(repository, findings, Options(unsafe_fixes=unsafe, target=version)).removes:
            fixes[finding] = name
    return [replace(finding, fix=fixes.get(finding)) for finding in findings]
