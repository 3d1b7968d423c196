"""How many findings there are and what each means for its owner: every report takes its numbers from here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mcore_unpatch.findings.finding import DOWNSTREAM, OFFER, OWN_MODELS, SWITCH, Finding
from mcore_unpatch.megatron.versions import Version, parse_version
from mcore_unpatch.report.lines import count, listed

# What becomes of a finding, the most urgent first.
FATES = {
    "rewrite": "migrate rewrites it",
    "rewrite_unsafe": "migrate --unsafe-fixes rewrites it",
    "delete": "migrate deletes it",
    "delete_unsafe": "migrate --unsafe-fixes deletes it",
    "delete_by_hand": "delete it by hand",
    "by_hand": "by hand",
    "kept": "kept",
}
# What the release in question does to it, whatever becomes of it.
EFFECTS = {"breaks": "breaks", "may_break": "may break", "changes": "changes silently"}
# What a finding is about, one and many of it; what is not in the code of the product is not told apart.
_SUBJECTS = {
    "patch": ("patch", "patches"),
    "use": ("use of a known patch", "uses of known patches"),
    "model": ("model that keeps the hook", "models that keep the hook"),
    "offer": ("line that can be faster", "lines that can be faster"),
    "tests": ("in tests", "in tests"),
    "patch_files": ("patch file", "patch files"),
    "possible": ("possible one, by its name alone", "possible ones, by their name alone"),
    "comment": ("unused ignore comment", "unused ignore comments"),
    "pin": ("pin that does not hold", "pins that do not hold"),
    SWITCH: ("part of the gate switched off", "parts of the gate switched off"),
}
_BY_SHAPE = dict.fromkeys(DOWNSTREAM, "use") | dict.fromkeys(OWN_MODELS, "model") | {OFFER: "offer"}
_BY_VERDICT = {"delete": "delete_by_hand", "steps": "by_hand"}
_URGENCY = (*EFFECTS, *FATES)


def fate_of(finding: Finding) -> str:
    """What becomes of a finding."""
    if finding.fix is None:
        return _BY_VERDICT.get(finding.verdict, "kept")
    return ("delete" if finding.verdict == "delete" else "rewrite") + ("_unsafe" if finding.fix == "unsafe" else "")


def urgency(finding: Finding, primary: Version = ()) -> tuple[float, bool, list[int]]:
    """The more urgent, the less: what the newest release breaks or changes first, tests last.

    What only releases before the `primary` one do, those of an old image say, comes behind all that is of today.
    """
    newest = max(map(parse_version, finding.fails or finding.affected), default=())
    rank: float = _URGENCY.index(finding.effect or fate_of(finding))
    if newest and newest < primary:
        rank = len(EFFECTS) - 0.5
    return rank, group_of(finding) != "code", [-number for number in newest]


def group_of(finding: Finding) -> str:
    """Where a finding is counted: `code`, `tests`, `patch_files`, `possible`, or `other` where it is no patch."""
    if not finding.target or finding.shape == "pin":
        return "other"
    if finding.shape == "patch-file":
        return "patch_files"
    if finding.confidence == "possible" and not finding.fix:
        return "possible"
    return "tests" if finding.in_test else "code"


def subjects(findings: Iterable[Finding]) -> str:
    """`23 patches, 6 uses of known patches, 25 in tests and 1 patch file`."""
    number = dict.fromkeys(_SUBJECTS, 0)
    for finding in findings:
        group = group_of(finding)
        if group == "other":
            group = finding.shape if finding.shape in number else "comment"
        number[_BY_SHAPE.get(finding.shape, "patch") if group == "code" else group] += 1
    return listed([count(many, *_SUBJECTS[kind]) for kind, many in number.items() if many])


def groups(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """The findings by where they are counted."""
    grouped: dict[str, list[Finding]] = {name: [] for name in ("code", "tests", "patch_files", "possible", "other")}
    for finding in findings:
        grouped[group_of(finding)].append(finding)
    return grouped


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """How many there are of each effect and of each fate; the fates add up to the total."""
    told = [fate_of(finding) for finding in findings]
    effects = [finding.effect for finding in findings]
    return {
        "total": len(findings),
        **{effect: effects.count(effect) for effect in EFFECTS},
        **{fate: told.count(fate) for fate in FATES},
    }


def as_data(findings: Iterable[Finding]) -> dict[str, dict[str, int]]:
    """The numbers of all groups, for machines."""
    return {name: counts(group) for name, group in groups(findings).items()}
