"""The end of a migration for people: what changed, what was left and why, what to do by hand, what is now needed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from mcore_unpatch.codemods.edits import Edit, Remark
from mcore_unpatch.migrate.outcome import Outcome
from mcore_unpatch.rules import rules

_SECTIONS = {
    "numerics": "Results may change",
    "differs": "Functions that differ from upstream",
    "left": "Left as it is",
    "by-hand": "To do by hand",
    "guard": "No longer needed",
}


def write(outcome: Outcome, console: Console) -> None:
    """Print the table; markup is never interpreted, so brackets in code stay."""
    applied = [edit for edit in outcome.plan.edits if outcome.options.applies(edit)]
    _head(outcome, applied, console)
    _files(outcome, applied, console)
    _rules(applied, console)
    remarks = [*_notes(outcome), *outcome.remarks, *_unsafe(outcome), *_unsaid(outcome)]
    for kind, title in _SECTIONS.items():
        chosen = sorted((remark for remark in remarks if remark.kind == kind), key=lambda one: (one.path, one.line))
        _remarks(title, chosen, outcome, console)
    _needs(outcome, console)
    if outcome.survey.findings:
        console.print()
        for judged in outcome.survey.judged:
            console.print(Text(str(judged), style="dim"))


def _head(outcome: Outcome, applied: list[Edit], console: Console) -> None:
    if not outcome.rewrites:
        console.print(Text("Nothing to migrate.", style="green"))
        return
    done = "Migrated" if outcome.written else "Would migrate"
    counts = f"{_many(len(outcome.rewrites), 'file')}, {_many(len(applied), 'edit')}"
    console.print(Text(f"{done}: {counts}.", style="bold"))
    if outcome.written:
        console.print(Text("`unpatch undo` takes it back.", style="dim"))


def _files(outcome: Outcome, applied: list[Edit], console: Console) -> None:
    if not outcome.rewrites:
        return
    rows = []
    for item in outcome.rewrites:
        edits = [edit for edit in applied if edit.path == item.path]
        what = ", ".join(sorted({edit.rule for edit in edits})) or "the dependency"
        rows.append((outcome.shown(item.path), what))
    _section("Files changed", rows, console)


def _rules(applied: list[Edit], console: Console) -> None:
    if applied:
        counts = Counter(edit.rule for edit in applied)
        rows = [(code, f"{_name(code)}: {_many(count, 'edit')}") for code, count in sorted(counts.items())]
        _section("Rules applied", rows, console)


def _section(title: str, rows: list[tuple[str, str]], console: Console) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    width = max(len(first) for first, _ in rows)
    for first, second in rows:
        console.print(Text.assemble("  ", (first.ljust(width), "cyan"), f"  {second}"))


def _remarks(title: str, remarks: list[Remark], outcome: Outcome, console: Console) -> None:
    if not remarks:
        return
    console.print()
    console.print(Text(title, style="bold"))
    for remark in remarks:
        place = f"{outcome.shown(remark.path)}:{outcome.line(remark.path, remark.line)}"
        console.print(Text.assemble("  ", (place, "cyan"), f"  {remark.rule}  {remark.text}"))
        for line in remark.detail.splitlines():
            console.print(Text(f"      {line}"))


def _proposals(outcome: Outcome, applied: bool) -> Iterator[tuple[Edit, int, int]]:
    """The edits that are made, or those that are not, once for all that answer one finding: line and number."""
    found: dict[tuple[str, str, str, int], list[Edit]] = defaultdict(list)
    for change in outcome.changes:
        edit = change.edit
        if change.applied is applied:
            found[edit.path, edit.rule, edit.title, edit.finding_line or change.before.line].append(edit)
    for (*_, line), edits in found.items():
        yield edits[0], line, len(edits)


def _notes(outcome: Outcome) -> Iterator[Remark]:
    """What an edit itself has to say, at the place it is made."""
    for edit, line, _ in _proposals(outcome, applied=True):
        for text in edit.notes:
            yield Remark(edit.path, line, edit.rule, "numerics", text)


def _unsafe(outcome: Outcome) -> Iterator[Remark]:
    for edit, line, number in _proposals(outcome, applied=False):
        how = "with --unsafe-fixes" if edit.applicability == "unsafe" else "by hand"
        count = f", {number} edits" if number > 1 else ""
        yield Remark(edit.path, line, edit.rule, "left", f"{edit.title} ({how}{count})")


def _unsaid(outcome: Outcome) -> Iterator[Remark]:
    """Patches that stay and that no remark speaks of."""
    told = {(remark.path, remark.line) for remark in outcome.plan.remarks}
    told |= {(edit.path, line) for edit, line, _ in _proposals(outcome, applied=False)}
    for finding in outcome.left:
        if (finding.path, finding.line) not in told and finding.target:
            why = "no official replacement yet" if finding.seam == "none" else f"by hand: {finding.replacement}"
            yield Remark(finding.path, finding.line, finding.rule, "left", f"{finding.target}: {why}")


def _needs(outcome: Outcome, console: Console) -> None:
    if not outcome.rewrites and outcome.dependency is None:
        return
    rows = []
    if outcome.plan.requirement and outcome.rewrites:
        rows.append(("megatron-core", f"{outcome.plan.requirement} is now required"))
    if needed := outcome.dependency:
        file = needed.file and outcome.shown(needed.file)
        what = "the extra " if needed.lacks_extra else ""
        if needed.added:
            how = f"{what}{'added to' if outcome.written else 'to be added to'} {file}"
        elif needed.lacks_extra:
            how = f"listed in {file} without the extra: put that in, or run with --add-dependency"
        else:
            how = f"listed in {file}" if file else "add it to the dependencies, or run with --add-dependency"
        rows.append(("dependency", f"{needed.line} ({how})"))
    if rows:
        _section("Now needed", rows, console)


def _name(code: str) -> str:
    known = rules().get(code)
    return known.name if known else code


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
