"""What an upgrade means, as the lines of one screen: uses and patches together, the most certain first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.judge.demands import CALL, IMPORT
from mcore_unpatch.judge.statement import IDLE, RAISES, SPEED, Statement
from mcore_unpatch.megatron.versions import RELEASES
from mcore_unpatch.records import record, replace
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.upgrade.fates import Fate
from mcore_unpatch.upgrade.run import UpgradeReport
from mcore_unpatch.upgrade.uses import outermost

GROUPS = RAISE, CHANGE, APPLY, SPEEDS, GO, LATER, ALREADY = (
    "raise", "change", "apply", "speed", "go", "later", "already"
)  # fmt: skip
HEADS = {
    RAISE: "Will raise",
    CHANGE: "Numbers may change",
    APPLY: "Patch files to apply again",
    SPEEDS: "Only speed or memory may change",
    GO: "Can go now",
    LATER: "Not urgent",
    ALREADY: "Fits neither release: never run, or run on another Megatron",
}
TESTS, PATCH_FILES = "tests", "patch files"  # what is folded to a count


@record
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
    fix: str = ""  # of the patch that it is, or that it stands in: whether `migrate` does it
    raises_on_both: bool = False  # it raises on the older release already

    @property
    def where(self) -> str:
        """`path:line`, with how many further lines."""
        return f"{self.path}:{self.line}" + "".join(f",{line}" for line in self.more[:3])


def items(report: UpgradeReport) -> list[Item]:
    """Everything that is not harmless; what several lines of a file share is one item."""
    told = {_key(use) for use in (*report.uses.affected, *report.uses.already)}
    within = {_key(statement): fate.finding for fate in report.fates if fate.fix for statement in fate.statements}
    every = [_of_line(use, report, within.get(_key(use))) for use in report.uses.affected]
    for use in report.uses.already:
        every += [replace(_of_line(use, report, None), group=ALREADY, raises_on_both=use.kind == RAISES)]
    for fate in report.fates:
        if fate.urgency != "harmless" or fate.is_idle:
            every += _of_fate(fate, report, told)
    every.sort(key=lambda item: (GROUPS.index(item.group), item.certainty, item.path, item.line))
    by_line: dict[tuple[object, ...], Item] = {}
    for item in every:  # what one statement imports fails together
        at = (item.group, item.path, item.line, item.title, item.fate is None or id(item))
        known = by_line.get(at)
        by_line[at] = item if known is None else _both(known, item)
    merged: dict[tuple[object, ...], Item] = {}
    for item in by_line.values():
        same = (item.group, item.path, item.title, item.reasons, item.fate is None or id(item))
        known = merged.get(same)
        merged[same] = item if known is None else replace(known, more=(*known.more, item.line))
    return list(merged.values())


def _both(first: Item, other: Item) -> Item:
    """Two things to say of one line; each keeps its own advice where they differ."""
    if set(other.reasons) <= set(first.reasons):
        return first
    told = [item.reasons if first.advice == other.advice else _advised(item) for item in (first, other)]
    return replace(first, reasons=(*told[0], *told[1]), advice=first.advice if first.advice == other.advice else "")


def _advised(item: Item) -> tuple[str, ...]:
    *before, last = item.reasons
    return (*before, f"{last}; {item.advice}" if item.advice else last)


def _key(statement: Statement) -> tuple[object, ...]:
    return statement.path, statement.line, statement.kind, statement.text.partition(";")[0]


def _of_line(statement: Statement, report: UpgradeReport, finding: Finding | None) -> Item:
    """What becomes of one line, in a patch or not."""
    function = outermost(statement)
    group = {RAISES: RAISE, SPEED: SPEEDS, IDLE: LATER}.get(statement.kind, CHANGE)
    title = f"{statement.exception} {statement.trigger}{_idle(function, report)}" if statement.exception else ""
    goes_too = finding is not None and statement.when == CALL  # with the code that takes Megatron's place
    fix = (finding.fix or "") if finding is not None and goes_too else ""
    advice = remedy(finding, report) if finding is not None and fix else statement.instead
    group = LATER if statement.before else group
    said = f"{statement.steps}: {statement.text}" if statement.steps else statement.text
    folded = TESTS if is_test(statement.path) else ""
    sure = 3 if function in report.uncalled else 0 if statement.when == IMPORT else 1
    both = statement.before and statement.kind == RAISES
    about = (report.shown(statement.path), statement.line, title, (said,), advice, folded, sure)
    return Item(group, *about, fix=fix, raises_on_both=both)


def _of_fate(fate: Fate, report: UpgradeReport, told: set[tuple[object, ...]]) -> Iterator[Item]:
    """A patch, and lines of the code that it reaches; a line that several patches reach is told once."""
    finding = fate.finding
    here = report.scanned.from_top(finding.path), finding.line
    elsewhere = [one for one in fate.statements if (one.path or here[0], one.line) != here or _key(one) in told]
    for statement in elsewhere:
        if _key(statement) not in told:
            told.add(_key(statement))
            yield _of_line(statement, report, finding)
    said = tuple(statement.seen_from(*here) for statement in elsewhere)
    reasons = tuple(reason for reason in fate.reasons if not reason.startswith(said))
    if fate.reasons and not reasons:
        return
    group = {"breaks": RAISE, "different": CHANGE, "unnecessary": GO, "harmless": LATER}[fate.urgency]
    if group == RAISE and said and not any("Error" in reason for reason in reasons):
        group = CHANGE
    own = [statement for statement in fate.statements if statement not in elsewhere]
    raises = [statement for statement in own if statement.kind == RAISES]
    both = group == RAISE and bool(raises) and all(statement.before for statement in raises)
    group = LATER if both else group
    if group == CHANGE and own and all(statement.kind == IDLE for statement in own):
        group = LATER
    if group == CHANGE and finding.shape == "patch-file":
        group = APPLY  # no source was held to it: nothing is known of numbers
    folded = TESTS if finding.in_test else PATCH_FILES if finding.shape == "patch-file" and group != APPLY else ""
    title = f"patch of {'.'.join(finding.target.split('.')[-2:])}" if finding.target else "patch file"
    advice = remedy(finding, report) if fate.fix else ""
    title += _idle(finding.installed_by, report)
    certainty = 3 if finding.installed_by in report.uncalled else 2
    about = (title, fate.told(reasons), advice, folded, certainty)
    yield Item(group, finding.path, finding.line, *about, fate=fate, fix=fate.fix, raises_on_both=both)


def urgent(known: Iterable[Item]) -> list[Item]:
    """What needs work before the move: it raises, changes silently, or has to be applied again."""
    return [item for item in known if item.group in (RAISE, CHANGE, APPLY)]


def _idle(function: str, report: UpgradeReport) -> str:
    """Of code that may never run: said, and left where it is, for others may call it."""
    return f"; nothing here calls `{function}`" if function in report.uncalled else ""


def remedy(finding: Finding, report: UpgradeReport) -> str:
    """What a command does about a patch."""
    command = migrate_command(report, safe=finding.fix == "safe")
    return f"`{command}` {'deletes' if finding.verdict == 'delete' else 'rewrites'} it"


def migrate_command(report: UpgradeReport, *, safe: bool) -> str:
    """With the target: without one, migrate does only what every Megatron that the repository runs today allows."""
    target = report.new.label if report.new.label in RELEASES else "PATH"
    return f"unpatch migrate --target-mcore {target}{'' if safe else ' --unsafe-fixes'}"
