"""What an upgrade means, as the lines of one screen: uses and patches together, the most certain first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.judge.demands import IMPORT
from mcore_unpatch.judge.statement import IDLE, RAISES, Statement
from mcore_unpatch.upgrade.fates import Fate
from mcore_unpatch.upgrade.run import UpgradeReport
from mcore_unpatch.upgrade.uses import Affected

GROUPS = RAISE, CHANGE, GO, LATER = "raise", "change", "go", "later"
HEADS = {RAISE: "Will raise", CHANGE: "Numbers may change", GO: "Can go now", LATER: "Not urgent"}
TESTS, PATCH_FILES = "tests", "patch files"  # what is folded to a count


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to know: a line of the repository, and what becomes of it."""

    group: str
    path: str
    line: int
    title: str
    reasons: tuple[str, ...]
    advice: str = ""
    folded: str = ""  # the kind of file that is told as a count
    certainty: int = 0  # the smaller, the surer
    more: tuple[int, ...] = ()  # further lines of which the same is true
    fate: Fate | None = None

    @property
    def where(self) -> str:
        """`path:line`, with how many further lines."""
        return f"{self.path}:{self.line}" + "".join(f",{line}" for line in self.more[:3])


def items(report: UpgradeReport) -> list[Item]:
    """Everything that is not harmless; what several lines of a file share is one item."""
    told = {_key(one.statement) for one in report.uses.affected}
    every = [*(_of_use(use, report.shown(use.path)) for use in report.uses.affected), *_of_fates(report, told)]
    every.sort(key=lambda item: (GROUPS.index(item.group), item.certainty, item.path, item.line))
    merged: dict[tuple[object, ...], Item] = {}
    for item in every:
        same = (item.group, item.path, item.title, item.reasons, item.fate is None or item)
        known = merged.get(same)
        merged[same] = item if known is None else replace(known, more=(*known.more, item.line))
    by_line: dict[tuple[object, ...], Item] = {}
    for item in merged.values():  # what one statement imports fails together
        at = (item.group, item.path, item.line, item.title, item.fate is None or item)
        known = by_line.get(at)
        by_line[at] = item if known is None else replace(known, reasons=(*known.reasons, *item.reasons))
    return list(by_line.values())


def _key(statement: Statement) -> tuple[object, ...]:
    return statement.path, statement.line, statement.kind, statement.text


def _of_use(use: Affected, path: str) -> Item:
    statement = use.statement
    group = RAISE if use.will_raise else LATER if statement.kind == IDLE else CHANGE
    title = f"{statement.exception} {statement.trigger}" if statement.exception else ""
    at_once = 0 if statement.when == IMPORT else 1
    folded = TESTS if use.in_test else ""
    return Item(group, path, statement.line, title, (statement.text,), statement.instead, folded, at_once)


def _of_fates(report: UpgradeReport, told: set[tuple[object, ...]]) -> Iterator[Item]:
    for fate in report.fates:
        if fate.urgency == "harmless":
            continue
        finding = fate.finding
        here = report.scanned.from_top(finding.path), finding.line
        known = [one.seen_from(*here) for one in fate.statements if _key(one) in told]
        reasons = tuple(reason for reason in fate.reasons if not reason.startswith(tuple(known)))
        if fate.reasons and not reasons:
            continue  # said of the lines themselves
        group = {"breaks": RAISE, "different": CHANGE, "unnecessary": GO}[fate.urgency]
        if group == RAISE and known and not any("Error" in reason for reason in reasons):
            group = CHANGE
        raises = [one for one in fate.statements if one.kind == RAISES]
        if group == RAISE and raises and all(one.before for one in raises):
            group = LATER  # as it does on the older release
        if group == CHANGE and (finding.shape == "patch-file" or _only_idle(fate)):
            group = LATER
        folded = PATCH_FILES if finding.shape == "patch-file" else TESTS if finding.in_test else ""
        title = f"patch of {'.'.join(finding.target.split('.')[-2:])}" if finding.target else "patch file"
        advice = remedy(finding) if finding.fix else ""
        yield Item(group, finding.path, finding.line, title, reasons, advice, folded, 2, fate=fate)


def _only_idle(fate: Fate) -> bool:
    return bool(fate.statements) and all(one.kind == IDLE for one in fate.statements)


def remedy(finding: Finding) -> str:
    """What a command does about a patch."""
    command = "unpatch migrate" if finding.fix == "safe" else "unpatch migrate --unsafe-fixes"
    return f"`{command}` {'deletes' if finding.verdict == 'delete' else 'rewrites'} it"
