"""What becomes of each finding: rewritten, deleted, done by hand in steps, or kept; and the evidence for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mcore_unpatch.findings import Finding
from mcore_unpatch.megatron import api, gone
from mcore_unpatch.megatron.answers import Answer, answers
from mcore_unpatch.megatron.versions import RELEASES, Version, show

REWRITE, DELETE, STEPS, KEEP = "rewrite", "delete", "steps", "keep"
_GUARDED = "`unpatch pin` tells when Megatron changes it"
_BRANCHES = {
    "if": "the condition on line {line} is false there",
    "else": "the condition on line {line} is true there",
    "after": "line {line} leaves before it",
    "except": "the import on line {line} does not fail there",
    "try": "the `try` on line {line} fails before it",
    "call": "it is called only where {where} allows it",
}


def settled(findings: Iterable[Finding], versions: dict[str, tuple[Version, ...]]) -> list[Finding]:
    """The findings with their verdicts; `versions` are the releases that each path is judged for."""
    return [_settled(finding, versions[finding.path]) for finding in findings]


def _settled(finding: Finding, versions: tuple[Version, ...]) -> Finding:
    verdict, evidence = _verdict(finding, versions)
    if finding.held and verdict == STEPS:
        evidence += f" Not rewritten: {finding.held.rstrip('.')}."
    return replace(finding, verdict=verdict, evidence=evidence)


def _verdict(finding: Finding, versions: tuple[Version, ...]) -> tuple[str, str]:
    on = f"megatron-core {' and '.join(map(show, versions))}"
    row = next((answer for answer in answers() if answer.name == finding.answer), None)
    if row is not None and finding.replacement:
        row = replace(row, way=finding.replacement)  # in the words of this place
    how = "`unpatch migrate`" if finding.fix == "safe" else "`unpatch migrate --unsafe-fixes`"
    dead = bool(versions) and not any(map(finding.live.on, versions))
    if finding.fix is not None and not (dead and finding.live.releases):
        return REWRITE, f"{how} rewrites it{_because(row)}"
    if finding.shape == "pin":
        return STEPS, f"The pin does not hold; `unpatch explain {finding.rule}` tells what to do."
    if not finding.target:
        return DELETE, "The comment suppresses nothing."
    if dead:
        if not finding.live.releases:
            return KEEP, f"It is for a Megatron newer than {RELEASES[-1]}: on the known releases it never runs."
        done = f"; {how} deletes it" if finding.fix else ""
        return DELETE, f"It never runs on {on}: {_guard(finding, versions)}{done}."
    if versions and all(gone.is_gone(finding.target, version) for version in versions) and not _is_read(finding):
        return DELETE, f"Megatron has no such name after {gone.last_releases()[finding.target]}: nothing calls it."
    if row is None and finding.replacement:
        return STEPS, f"{_capital(finding.replacement)}."
    if row is None:
        return KEEP, f"No official way is known for what it does; {_GUARDED}."
    if finding.confidence == "possible" and not _is_class_told(finding, row):
        return KEEP, f"Which class it changes is not known: if a Megatron module's, {row.way}{row.reference}."
    if row.verdict == KEEP or any(version < row.needs for version in versions):
        return KEEP, f"No official way on {on}{_because(row)}; {_GUARDED}."
    return row.verdict, f"An official way exists{_because(row)}." if row.verdict == STEPS else f"{_capital(row.way)}."


def _is_class_told(finding: Finding, row: Answer) -> bool:
    """Whether the row is for any module or for a part of a layer, or only one class of Megatron's has the method."""
    owner, _, name = finding.target.rpartition(".")
    return row.seam == "hook" or "part" in row.traits or api.unique_method_owner(name) == owner


def _is_read(finding: Finding) -> bool:
    """Whether the original is read too, which raises where it is gone: that is no dead code."""
    return any(item.role == "backup" for item in finding.related)


def _because(row: Answer | None) -> str:
    if row is None:
        return ""
    return f": {row.way}{row.reference}"


def _guard(finding: Finding, versions: tuple[Version, ...]) -> str:
    """The guard that keeps a patch from running on the judged releases."""
    judged = {release for release in RELEASES for version in versions if release.startswith(f"{show(version)}.")}
    for guard in finding.live.guards:
        if judged <= set(guard.rules_out):
            words = _BRANCHES.get(guard.branch, _BRANCHES["after"])
            return words.format(line=guard.line, where=f"{guard.path}:{guard.line}")
    return f"the conditions around it leave {finding.live}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
