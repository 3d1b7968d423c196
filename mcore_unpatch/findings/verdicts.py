"""What is settled of findings once all are known: branches for other releases, statements that two names share."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from mcore_unpatch.effects.verdicts import Fate, Reason, Verdict
from mcore_unpatch.findings.finding import NEVER_RUNS, PIN, Finding, OnRelease, OnStacks
from mcore_unpatch.megatron.versions import show
from mcore_unpatch.stacks.revision import Judged, Stack


def settled(findings: Iterable[Finding], judged: dict[str, Judged], guessed: Container[str] = ()) -> list[Finding]:
    """The findings with what becomes of them; `judged` are the stacks that each path is judged for.

    Of a path whose releases are `guessed` a branch for others may be the one that runs: it is not to be deleted.
    """
    return _together([_settled(one, judged[one.path], one.path in guessed) for one in findings])


def decided(finding: Finding, verdict: Verdict | None) -> Finding:
    """A finding of which something else becomes than its finder said."""
    return replace(finding, assessment=replace(finding.assessment, settled=verdict))


def _settled(finding: Finding, judged: Judged, guessed: bool) -> Finding:
    told = _of(finding, judged)
    if told.reason == Reason.NEVER_RUNS and guessed:
        told = Verdict(Fate.STAYS, Reason.NOT_KNOWN)
    row = finding.row
    is_older = any(stack.revision.is_older for stack in judged.stacks)
    if is_older and row is not None and row.since and not row.anywhere and told.row and told.fate != Fate.STAYS:
        told = Verdict(Fate.STAYS, Reason.NO_WAY_YET, told.row)
    finding = decided(finding, told if told != finding.own else None)
    stacks = _on_stacks(finding, judged.stacks)
    return replace(finding, assessment=replace(finding.assessment, on_stacks=stacks))


def _of(finding: Finding, judged: Judged) -> Verdict:
    """What becomes of it by itself."""
    if finding.shape == PIN:
        return Verdict(Fate.BY_HAND, Reason.PIN)
    if finding.outcomes or finding.own != Verdict():
        return finding.own
    if judged.versions and not any(map(finding.live.on, judged.versions)):
        return (
            Verdict(Fate.GOES, Reason.NEVER_RUNS) if finding.live.releases else Verdict(Fate.STAYS, Reason.FOR_OTHERS)
        )
    return Verdict(Fate.BY_HAND, Reason.OFFICIAL_WAY) if finding.way else finding.own


def _on_stacks(finding: Finding, stacks: Sequence[Stack]) -> tuple[OnStacks, ...]:
    """How a finding fares on each stack, where that is not the same on all that are known."""
    by_release = {one.release: one for one in finding.outcomes}
    groups: dict[tuple[OnRelease, ...], list[str]] = {}
    for stack in stacks:
        found = [by_release[label] for version in stack.versions if (label := show(version)) in by_release]
        alike = len({(one.outcome, one.fate) for one in found}) == 1
        told = [OnRelease("", found[0].outcome, found[0].fate)] if alike else found
        if found:
            groups.setdefault(tuple(told), []).append(stack.name)
    differs = len(groups) > 1 or any(len(told) > 1 for told in groups)
    return tuple(OnStacks(tuple(names), told) for told, names in groups.items()) if differs else ()


def _together(findings: list[Finding]) -> list[Finding]:
    """One statement that patches several names is deleted only if it is for all of them."""
    needed: dict[tuple[str, int, int], Finding] = {}
    for finding in findings:
        if finding.judgement.fate != Fate.GOES:
            needed.setdefault((finding.path, finding.line, finding.column), finding)

    def said(finding: Finding) -> Finding:
        other = needed.get((finding.path, finding.line, finding.column))
        if finding.judgement.fate != Fate.GOES or other is None:
            return finding
        return decided(finding, Verdict(Fate.STAYS, Reason.SHARED, name=other.target))

    return [said(finding) for finding in findings]


def never_runs(finding: Finding) -> bool:
    """Whether a patch runs on no release that it is judged for."""
    return bool(finding.outcomes) and all(one.outcome == NEVER_RUNS for one in finding.outcomes)
