"""What `unpatch scan` finds, held against patches that were read by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

LABELS = Path(__file__).parents[1] / "labels"
SETS = ("field", "held_out", "unseen")  # read while the tool was built, and twice before it had ever seen them
VERDICTS = ("keep", "steps", "rewrite", "delete")
_STRENGTH = {"keep": 0, "done": 0, "steps": 1, "rewrite": 2, "delete": 2}
_HEAD = (
    "repository",
    "labels",
    "missed",
    "recall",
    "false",
    "precision",
    "live",
    "verdicts",
    "right",
    "weaker",
    "other",
    "wrong promises",
)
# At least one release on each side of every bound that a label names, and one that is still to come.
_MINORS = [f"0.{minor}.0" for minor in range(12, 20)]
_RELEASES = [Version(release) for release in (*_MINORS, "0.12.1", "0.12.3", "0.16.1", "0.18.2", "0.19.2", "99")]
_NEAR = 3  # lines: a statement may be reported at its first line or at the line of the name


@dataclass(frozen=True)
class Label:
    """One patch as a reader sees it; `optional` where reporting and not reporting it are both right."""

    path: str
    line: int
    target: str
    live: str
    verdict: str
    why: str
    accept: tuple[str, ...] = ()
    optional: bool = False
    found_by: str = "reader"
    released: int = 0  # its line in the release, by its code; 0 where that lacks it

    @property
    def counts(self) -> bool:
        """Whether it counts for recall: what only the scan showed would flatter it."""
        return not self.optional and self.found_by == "reader"


@dataclass(frozen=True)
class Repository:
    """The labels of one repository at one commit; `paths` where only a part of it was read.

    `release` is a wheel that has most of the same code, as name-version; `in_wheel` is what a reader saw there alone.
    """

    repository: str
    commit: str
    judged: str
    patches: tuple[Label, ...]
    paths: tuple[str, ...] = ()
    note: str = ""
    release: str = ""
    in_wheel: tuple[Label, ...] = ()

    @property
    def name(self) -> str:
        return self.repository.partition("/")[2]

    def of_wheel(self) -> Repository:
        """The labels of the wheel of the release: those whose code it has, where it has it, and its own."""
        there = [label for label in self.patches if label.released]
        moved = [replace(label, path=label.path.removeprefix("src/"), line=label.released) for label in there]
        return replace(self, patches=(*moved, *self.in_wheel))


def repositories(name: str) -> list[Repository]:
    """All label files of a set."""
    return [_repository(json.loads(file.read_text())) for file in sorted((LABELS / name).glob("*.json"))]


def _repository(data: dict[str, Any]) -> Repository:
    lists = {name: _labels(data.pop(name, [])) for name in ("patches", "in_wheel")}
    return Repository(**{**data, "paths": tuple(data.get("paths", ()))}, **lists)


def _labels(patches: list[dict[str, Any]]) -> tuple[Label, ...]:
    return tuple(Label(**{**patch, "accept": tuple(patch.get("accept", ()))}) for patch in patches)


@dataclass
class Score:
    """One row of the table; rows add up."""

    name: str
    labels: int = 0
    missed: list[str] = field(default_factory=list)
    possible: int = 0  # found with the lowest confidence alone
    false: list[str] = field(default_factory=list)
    findings: int = 0
    targets: list[str] = field(default_factory=list)  # found, and taken for something else
    lives: int = 0  # found, with the releases it runs on
    wrong_lives: list[str] = field(default_factory=list)
    judged: int = 0  # found, with a verdict
    right: int = 0
    weaker: list[str] = field(default_factory=list)  # true, and less than could be said
    other: list[str] = field(default_factory=list)
    promises: list[str] = field(default_factory=list)  # said to be possible where it is not

    def __add__(self, other: Score) -> Score:
        total = Score(self.name)
        for name, mine in vars(self).items():
            if name != "name":
                setattr(total, name, mine + getattr(other, name))
        return total

    @property
    def recall(self) -> float:
        return 1 - len(self.missed) / self.labels if self.labels else 1.0

    @property
    def precision(self) -> float:
        return 1 - len(self.false) / self.findings if self.findings else 1.0


def score(repository: Repository, findings: Iterable[dict[str, Any]]) -> Score:
    """Compare the findings of a JSON report with the labels."""
    result = Score(repository.name)
    open_labels = list(repository.patches)
    pairs = []
    counted = _patch_files_as_one([finding for finding in findings if _counts(finding, repository)])
    for near in (0, _NEAR):  # a label on the very line goes first
        for finding in [finding for finding in counted if not any(finding is found for found, _ in pairs)]:
            same = [label for label in open_labels if _fits(finding, label, near)]
            if same:
                label = min(same, key=lambda label: (not _same_name(finding, label), abs(finding["line"] - label.line)))
                open_labels.remove(label)
                pairs.append((finding, label))
    for finding, label in pairs:
        if label.counts:
            result.labels += 1
            result.possible += finding["confidence"] == "possible"
        _compare(result, finding, label)
    for label in open_labels:
        if label.counts:
            result.labels += 1
            result.missed.append(f"{repository.name} {label.path}:{label.line} {label.target}")
    result.findings = len(counted)
    found = [finding for finding, _ in pairs]
    result.false = [
        f"{repository.name} {finding['path']}:{finding['line']} {finding['target']}"
        for finding in counted
        if not any(finding is one for one in found)
    ]
    return result


def _counts(finding: dict[str, Any], repository: Repository) -> bool:
    """Patches outside tests, in the part that was read: families MCU1 to MCU6."""
    inside = not repository.paths or any(finding["path"].startswith(path) for path in repository.paths)
    patch = "MCU1" <= finding["rule"] < "MCU7" and finding.get("shape") not in ("subclass", "wrapper")
    return inside and not finding["in_test"] and patch


def _patch_files_as_one(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A patch file has one label, for all of it: the finding that promises least speaks for it."""
    files: dict[str, dict[str, Any]] = {}
    for finding in findings:
        if finding.get("shape") == "patch-file":
            known = files.setdefault(finding["path"], finding)
            if _STRENGTH[finding["verdict"]] < _STRENGTH[known["verdict"]]:
                files[finding["path"]] = finding
    whole = [finding for finding in findings if finding.get("shape") != "patch-file"]
    return whole + [{**finding, "line": 1} for finding in files.values()]


def _fits(finding: dict[str, Any], label: Label, near: int) -> bool:
    if finding["path"] != label.path or abs(finding["line"] - label.line) > near:
        return False
    return near == 0 or _same_name(finding, label)


def _same_name(finding: dict[str, Any], label: Label) -> bool:
    if finding.get("shape") == "patch-file":
        return True
    return bool(finding["target"].rpartition(".")[2] == label.target.rpartition(".")[2])


def _compare(result: Score, finding: dict[str, Any], label: Label) -> None:
    place = f"{result.name} {label.path}:{label.line}"
    if not _same_name(finding, label):
        result.targets.append(f"{place} {label.target}, taken for {finding['target']}")
    live = finding.get("live")
    if live is not None:
        result.lives += 1
        if _releases(live) != _releases(label.live):
            result.wrong_lives.append(f"{place} {live}, should be {label.live}")
    verdict = finding.get("verdict")
    if verdict is None:
        return
    result.judged += 1
    said = f"{place} {verdict}, should be {label.verdict}: {label.why}"
    if verdict == label.verdict or verdict in label.accept:
        result.right += 1
    elif _STRENGTH[verdict] < _STRENGTH[label.verdict]:
        result.weaker.append(said)
    elif label.verdict == "keep" or verdict == "delete":
        result.promises.append(said)
    else:
        result.other.append(said)


def _releases(live: str) -> set[Version]:
    """The releases that version specifiers such as `>=0.13,<=0.16.1 or >0.19.2` allow."""
    if live in ("all", "any", "none"):
        return set() if live == "none" else set(_RELEASES)
    return {release for clause in live.split(" or ") for release in SpecifierSet(clause).filter(_RELEASES)}


def table(scores: list[Score]) -> str:
    """One line for each repository, and one for all."""
    widths = (-20, 7, 7, 8, 6, 10, 8, 9, 7, 7, 6, 15)
    rows: list[tuple[object, ...]] = [_HEAD]
    for row in [*scores, sum(scores, Score("all"))]:
        found = (row.name, row.labels, len(row.missed), f"{row.recall:.1%}", len(row.false), f"{row.precision:.1%}")
        live = f"{1 - len(row.wrong_lives) / row.lives:.1%}" if row.lives else "-"
        right = f"{row.right / row.judged:.1%}" if row.judged else "-"
        rows.append((*found, live, row.judged, right, len(row.weaker), len(row.other), len(row.promises)))
    return "\n".join(
        "".join(
            str(cell).ljust(-width) if width < 0 else str(cell).rjust(width)
            for cell, width in zip(row, widths, strict=True)
        )
        for row in rows
    )
