"""The end of a migration for people: what changed, what was left and why, what to do by hand, what is now needed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from mcore_unpatch.codemods.edits import Edit
from mcore_unpatch.findings import Finding
from mcore_unpatch.migrate.outcome import Outcome
from mcore_unpatch.report.lines import Line, count, show, subjects, tally, wrapped
from mcore_unpatch.rules import rules

_SECTIONS = {
    "numerics": "Results may change",
    "differs": "Functions that differ from upstream",
    "finding": "Left as it is",
    "left": "Not changed, and why",
    "by-hand": "To do by hand",
    "guard": "No longer needed",
}


@dataclass(frozen=True, slots=True)
class _Entry:
    """One place of a section. Places with the same text are printed above it together, and texts of the same places."""

    kind: str
    path: str
    line: int
    rule: str
    text: str
    subject: str = ""
    detail: str = ""


def write(outcome: Outcome, stderr: bool = False) -> None:
    """Print the table."""
    show(lines(outcome), stderr)


def lines(outcome: Outcome) -> Iterator[Line]:
    """The table, line by line."""
    applied = [edit for edit in outcome.plan.edits if outcome.options.applies(edit)]
    yield from _head(outcome, applied)
    answered = outcome.answered
    yield from _files(outcome, answered, applied)
    yield from _rules(answered)
    entries = [*_notes(outcome), *_told(outcome)]
    for kind, title in _SECTIONS.items():
        chosen = sorted((one for one in entries if one.kind == kind), key=lambda one: (one.path, one.line))
        yield from _entries(title, chosen, outcome)
    yield from _needs(outcome)
    if outcome.survey.findings:
        yield []
        for judged in outcome.survey.judged:
            yield from wrapped(str(judged), 0)
        yield from wrapped(_summary(outcome), 0)


def _head(outcome: Outcome, applied: list[Edit]) -> Iterator[Line]:
    if not outcome.rewrites:
        yield [("Nothing to migrate.", "green")]
        return
    done = "Migrated" if outcome.written else "Would migrate"
    yield [(f"{done}: {count(len(outcome.rewrites), 'file')}, {count(len(applied), 'edit')}.", "bold")]
    if outcome.written:
        yield [("`unpatch undo` reverts it.", "dim")]


def _files(outcome: Outcome, answered: list[Finding], applied: list[Edit]) -> Iterator[Line]:
    rules = defaultdict(set)
    for path, rule in [(one.path, one.rule) for one in answered] + [(one.path, one.rule) for one in applied]:
        rules[path].add(rule)  # an edit may be in a file without findings
    rows = [
        (outcome.shown(item.path), ", ".join(sorted(rules[item.path])) or "the dependency") for item in outcome.rewrites
    ]
    yield from _section("Files changed", rows)


def _rules(answered: list[Finding]) -> Iterator[Line]:
    counts = Counter(finding.rule for finding in answered)
    rows = [(code, f"{_name(code)}: {count(number, 'finding')}") for code, number in sorted(counts.items())]
    yield from _section("Rules applied", rows)


def _section(title: str, rows: list[tuple[str, str]]) -> Iterator[Line]:
    if not rows:
        return
    yield []
    yield [(title, "bold")]
    columns = max(len(first) for first, _ in rows)
    for first, second in rows:
        yield from wrapped(second, 2, f"{first.ljust(columns)}  ", "cyan")


def _entries(title: str, entries: list[_Entry], outcome: Outcome) -> Iterator[Line]:
    if not entries:
        return
    yield []
    yield [(title, "bold")]
    said: dict[tuple[str, str], list[_Entry]] = defaultdict(list)
    for entry in entries:
        said[entry.text, entry.detail].append(entry)
    at: dict[tuple[tuple[str, int, str, str], ...], list[tuple[str, str]]] = defaultdict(list)
    for told, places in said.items():
        at[tuple((one.path, one.line, one.rule, one.subject) for one in places)].append(told)
    for where, texts in at.items():
        for path, line, rule, subject in where:
            place = f"{outcome.shown(path)}:{outcome.line(path, line)}  "
            yield from wrapped(f"{rule}  {subject}".rstrip(), 2, place, "cyan", hang=10)
        for text, detail in texts:
            yield from wrapped(_sentence(text), 6, "- " if len(texts) > 1 else "")
            for part in detail.splitlines():
                yield [(f"      {part}", "")]


def _proposals(outcome: Outcome, applied: bool) -> Iterator[tuple[Edit, int, int]]:
    """The edits that are made, or those that are not, once for all that answer one finding: line and number."""
    found: dict[tuple[str, str, str, int], list[Edit]] = defaultdict(list)
    for change in outcome.changes:
        edit = change.edit
        if change.applied is applied:
            found[edit.path, edit.rule, edit.title, edit.finding_line or change.before.line].append(edit)
    for (*_, line), edits in found.items():
        yield edits[0], line, len(edits)


def _notes(outcome: Outcome) -> Iterator[_Entry]:
    """What an edit itself has to say, at the place it is made."""
    for edit, line, _ in _proposals(outcome, applied=True):
        for text in edit.notes:
            yield _Entry("numerics", edit.path, line, edit.rule, text)


def _told(outcome: Outcome) -> Iterator[_Entry]:
    """The remarks of the plan and the edits it only proposes; then every patch that stays, with what they say of it."""
    reasons: dict[tuple[str, int], str] = {}
    left = {(finding.path, finding.line) for finding in outcome.left}
    for edit, line, number in _proposals(outcome, applied=False):
        how = "with --unsafe-fixes" if edit.applicability == "unsafe" else "by hand"
        text = f"{edit.title} ({how}{f', {number} edits' if number > 1 else ''})"
        if (edit.path, line) in left:
            reasons[edit.path, line] = text
        else:
            yield _Entry("left", edit.path, line, edit.rule, text)
    for remark in outcome.remarks:
        place = (remark.path, remark.line)
        if remark.kind == "left" and place in left:
            reasons[place] = remark.text
        else:
            yield _Entry(remark.kind, *place, remark.rule, remark.text, detail=remark.detail)
            if remark.kind == "by-hand":
                reasons.setdefault(place, "See the steps below")
    for finding in outcome.left:
        reason = reasons.get((finding.path, finding.line)) or finding.evidence
        subject = _short(finding) + (" (test)" if finding.in_test else "")
        yield _Entry("finding", finding.path, finding.line, finding.rule, reason, subject)


def _summary(outcome: Outcome) -> str:
    """The last line: what was found, and what became of it."""
    fates = outcome.fates
    found = subjects([finding for finding in outcome.survey.findings if finding.target])
    order = ("rewritten", "deleted", "with --unsafe-fixes", "by hand", "kept")
    return tally(found, {fate: fates[fate] for fate in order})


def _short(finding: Finding) -> str:
    """The last two parts of a target: the class and its method, or the module and its name."""
    return ".".join(finding.target.split(".")[-2:])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _needs(outcome: Outcome) -> Iterator[Line]:
    rows = []
    if outcome.plan.requirement and outcome.rewrites:
        rows.append(("megatron-core", f"{outcome.plan.requirement} is now required"))
    if needed := outcome.dependency:
        file = needed.file and outcome.shown(needed.file)
        what = "the extra " if needed.lacks_extra else ""
        if needed.added:
            how = f"{what}{'added to' if outcome.written else 'to be added to'} {file}"
        elif needed.lacks_extra:
            how = f"listed in {file} without the extra: add it, or run with --add-dependency"
        else:
            how = f"listed in {file}" if file else "add it to the dependencies, or run with --add-dependency"
        rows.append(("dependency", f"{needed.line} ({how})"))
        if needed.python:
            rows.append(("Python", f"3.12 for {needed.line}, 3.11 for `unpatch` alone ({needed.python})"))
    yield from _section("Now needed", rows)


def _name(code: str) -> str:
    known = rules().get(code)
    return known.name if known else code
