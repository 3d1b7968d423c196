"""The upgrade report on one screen: the table of patches first, then what happens, then one command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

from mcore_unpatch.effects.records import Effect, When
from mcore_unpatch.records import record, replace
from mcore_unpatch.report.lines import Line, count, listed, width, wrapped
from mcore_unpatch.say.effects import DIFFERS, NOT_PRINTED, NOT_REACHED, OK, RAISES, UNKNOWN, mark, sentence, trigger
from mcore_unpatch.say.names import leaf, short
from mcore_unpatch.say.other_model import ACTS, DEAD, cell, sentence as elsewhere
from mcore_unpatch.upgrade.copies import Changes
from mcore_unpatch.upgrade.ranges import Fit, supported
from mcore_unpatch.upgrade.run import Event, PatchRow, Reading, UpgradeReport

_MOST_ROWS, _MOST_EVENTS = 40, 6  # without --all
_MOST_NAMED = 3  # places of a release in a range
_MARKS = (RAISES, UNKNOWN, DIFFERS, NOT_REACHED, OK)
_STYLES = {RAISES: "bold red", DIFFERS: "yellow", UNKNOWN: "cyan", OK: "green", NOT_REACHED: "dim"}
_STYLES |= {ACTS: "green", DEAD: "red"}
_VERB = 8
_BRANCH = "Megatron "  # begins the name of what is no release
BECOMES = ("moves", "goes", "by hand", "stays", "done")


@record
class Group:
    """Events of one kind under one head."""

    key: str
    head: str
    events: tuple[Event, ...]


def groups(report: UpgradeReport) -> list[Group]:
    """What raises today, what raises on the next Megatron alone, and where numbers differ there."""
    told = [event for event in report.events if event.effect.kind not in NOT_PRINTED]
    today = [event for event in told if event.effect.raises and not set(event.releases).isdisjoint(report.today)]
    later = [event for event in told if event.effect.raises and event not in today]
    differs = [event for event in told if event.effect.differs and report.next.label in event.releases]
    label = report.next.label
    found = [
        Group("today", "Raises on what you run today", tuple(today)),
        Group("raises", f"Raises on {label}", tuple(later)),
        Group("differs", f"Numbers differ on {label}", tuple(differs)),
    ]
    return [group for group in found if group.events]


def lines(
    report: UpgradeReport, every: bool, copies: Mapping[tuple[str, int, str], Changes] = MappingProxyType({})
) -> Iterator[Line]:
    """The report, line by line."""
    if not report.rows and not report.uses and not report.patch_files:
        yield [(f"No use of Megatron Core found in {count(report.scanned.files_scanned, 'file')}.", "")]
        return
    yield from _head(report)
    if report.rows:
        yield []
        yield from _table(report, every)
        yield from _on_hybrid(report, every)
    for group in groups(report):
        yield []
        yield from _events(group, report, every)
    for (path, line, target), made in copies.items():
        yield []
        yield from _changes(f"{report.from_here(path)}:{line}  {short(target)}", made, report.next.label)
    yield []
    yield from _foot(report)


# -- head and foot ---------------------------------------------------------------------------------------------------


def _head(report: UpgradeReport) -> Iterator[Line]:
    read = f"{count(len(report.rows), 'patch', 'patches')} and {count(report.uses, 'use')} of Megatron Core"
    yield [(f"{read}, on the way to {report.next.label}", "bold")]
    used = [column for column in report.columns if not column.is_next]
    runs = [
        f"{column.words.partition(',')[0] or column.label} ({', '.join(column.kinds)})"
        if column.kinds
        else column.words.partition(",")[0] or column.label
        for column in used
    ]
    older = f" {count(report.older, 'other is', 'others are')} named: unpatch stacks." if report.older else ""
    yield from wrapped(f"You run {listed(runs)}.{older}", 0)
    for column in report.columns:
        if column.name:
            yield from wrapped(f"{column.name}: {column.words}.", 0)
        elif column.words:
            yield from wrapped(f"{column.words}, is judged as {column.label}.", 0)
    if needed := _needed_branch(report):
        yield from wrapped(needed, 0, "", "bold")


def _needed_branch(report: UpgradeReport) -> str:
    """That the code asks for what a branch has, and no release."""
    asked = [event.effect.cause for event in report.events if event.effect.cause.comes.startswith(_BRANCH)]
    if not asked:
        return ""
    more = len({cause.name for cause in asked}) - 1
    beside = f" and {more} more" if more else ""
    return f"Your code needs {asked[0].comes}: no release has `{short(asked[0].name)}`{beside}."


def _foot(report: UpgradeReport) -> Iterator[Line]:
    if report.patch_files:
        which = count(len(report.patch_files), "patch file changes", "patch files change")
        yield from wrapped(f"{which} Megatron's own source: apply to {report.next.label} to see.", 0)
    if report.scanned.errors:
        yield from wrapped(f"{count(len(report.scanned.errors), 'file')} could not be read.", 0)
    wrong = {event.row.path + str(event.row.line) for group in groups(report) for event in group.events if event.row}
    safe = [row for row in report.rows if row.finding is not None and row.finding.fix == "safe"]
    unsafe = [row for row in report.rows if row.finding is not None and row.finding.fix == "unsafe"]
    if not any(group.key != "today" for group in groups(report)):
        yield from wrapped(f"Nothing that was read raises or differs on {report.next.label} alone.", 0)
    for command, rows in (("unpatch migrate", safe), ("unpatch migrate --unsafe-fixes", unsafe)):
        if rows:
            helped = sum(row.path + str(row.line) in wrong for row in rows)
            said = f"{count(len(rows), 'patch', 'patches')}" + (f", {helped} of the above" if helped else "")
            yield [("Next: ", "bold"), (command, "bold green"), (f"   edits {said}", "")]
            break


def _changes(head: str, made: Changes, release: str) -> Iterator[Line]:
    """What upstream changed in a function that was copied, and what the repository did."""
    yield [(head, "cyan")]
    for name, text in ((f"upstream, {made.release} to {release}", made.upstream), ("yours", made.own)):
        yield [(f"  {name}: {'no change' if not text else ''}".rstrip(), "bold")]
        for line in text.splitlines()[2:]:
            yield [(f"    {line}", {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], ""))]


def ranges(fitting: Sequence[Fit], in_use: str, reading: Reading) -> Iterator[Line]:
    """A line for each release of a range, and what the metadata of the repository can say."""
    yield [(f"Places that raise, seen from megatron-core {in_use}", "bold")]
    yield []
    for fit in fitting:
        named = ", ".join(f"{reading.scanned.from_here(path)}:{line}" for path, line in fit.raises[:_MOST_NAMED])
        more = f" and {len(fit.raises) - _MOST_NAMED} more" if len(fit.raises) > _MOST_NAMED else ""
        told = ", ".join(filter(None, ["in use" * (fit.label == in_use), f"{named}{more}"]))
        head, style = f"  {fit.label:<10}{len(fit.raises) or '-':>4}  ", "bold red" if fit.raises else "green"
        yield from wrapped(told, 0, head, style) if told else [[(head.rstrip(), style)]]
    yield []
    span = supported(fitting, in_use)
    said = (
        f"No range to recommend: places raise on megatron-core {in_use}, which is in use, or it is not in this range."
    )
    if span is not None:
        floor, ceiling = span
        said = f"Of what was read nothing raises from {floor} to {ceiling}: `megatron-core>={floor},<={ceiling}`."
    yield from wrapped(f"{said} Tests were left out.", 0)


# -- the table -------------------------------------------------------------------------------------------------------


def _table(report: UpgradeReport, every: bool) -> Iterator[Line]:
    """Patches down, Megatrons across, the most urgent first."""
    rows_of = sorted(report.rows, key=lambda row: urgency(row, report))
    marked = [((*marks_of(row, report), *hybrid_of(row, report)), row) for row in rows_of]
    shown = [item for item in marked if every or not _is_fine(item[0])]
    merged = list(_merged(shown))
    listed_rows = merged if every else merged[:_MOST_ROWS]
    places = _short_paths([rows[0].path for _, rows in listed_rows])
    heads = [(column.label, ",".join(column.kinds)) for column in report.columns]
    heads += [("Hybrid", "")] * bool(hybrid_of(report.rows[0], report))
    sizes = [max(7, len(label), *(len(item[0][at]) for item in listed_rows)) for at, (label, _) in enumerate(heads)]
    left = width() - sum(size + 2 for size in sizes) - _VERB
    kinds = "".join(f"{_fit(kind, size):<{size + 2}}" for (_, kind), size in zip(heads, sizes, strict=True))
    labels = "".join(f"{label:<{size + 2}}" for (label, _), size in zip(heads, sizes, strict=True))
    yield [(f"{'':<{left}}{kinds}".rstrip(), "dim")]
    yield [(f"{'patch':<{left}}{labels}".rstrip(), "bold")]
    for marks, rows in listed_rows:
        where, what = f"{places[rows[0].path]}:{_numbers(rows)}", _what(rows)
        cells = [(f"{each:<{size + 2}}", _STYLES.get(each, "yellow")) for each, size in zip(marks, sizes, strict=True)]
        if len(where) + len(what) + 4 > left:
            yield [(where, "cyan")]
            where = ""
        name = _fit(f"{where}  {what}", left - 2)
        yield [(f"{name:<{left}}", ""), *cells, (rows[0].becomes, "")]
    rest = len(report.rows) - sum(len(rows) for _, rows in listed_rows)
    if rest:
        yield [(f"  ... {rest} more are ok everywhere, or never run: --all", "dim")]


def marks_of(row: PatchRow, report: UpgradeReport) -> tuple[str, ...]:
    """What stands in the cells of a patch."""
    return tuple(mark(row.effects.get(column.label, ())) for column in report.columns)


def hybrid_of(row: PatchRow, report: UpgradeReport) -> tuple[str, ...]:
    """What stands in its last cell: when the model is a HybridModel; nothing where the next Megatron has none."""
    is_idle = marks_of(row, report)[-1:] == (NOT_REACHED,)
    return (NOT_REACHED if is_idle else cell(row.hybrid),) if row.hybrid is not None else ()


def _on_hybrid(report: UpgradeReport, every: bool) -> Iterator[Line]:
    """How many patches do what on a HybridModel; `every`: and why."""
    cells = Counter(one for row in report.rows for one in hybrid_of(row, report) if one != NOT_REACHED)
    if cells or report.builders:
        told = ", ".join(f"{one} {number}" for one, number in cells.most_common())
        built = (
            f" GPTModel is built, derived from or handed on at {count(report.builders, 'place')}."
            if report.builders
            else ""
        )
        yield from wrapped(f"Hybrid: what a patch does when the model is a HybridModel. {told}.{built}", 0)
    for row in report.rows if every else ():
        if row.hybrid is not None and not _is_fine(hybrid_of(row, report)):
            place = f"  {report.from_here(row.path)}:{row.line}  "
            yield from wrapped(f"{short(row.target)} {elsewhere(row.hybrid)}.", 0, place, "cyan", 6)


def urgency(row: PatchRow, report: UpgradeReport) -> tuple[object, ...]:
    """The more urgent, the less."""
    is_hybrid_fine = _is_fine(hybrid_of(row, report))
    return (min(map(_MARKS.index, marks_of(row, report))), is_hybrid_fine, row.path, row.line)


def _is_fine(marks: Sequence[str]) -> bool:
    return all(each in (OK, NOT_REACHED, ACTS) for each in marks)


def _merged(items: Iterable[tuple[tuple[str, ...], PatchRow]]) -> Iterator[tuple[tuple[str, ...], list[PatchRow]]]:
    """Methods of one class that one file patches, and that fare alike, share a row."""

    def alike(item: tuple[tuple[str, ...], PatchRow]) -> tuple[object, ...]:
        marks, row = item
        return marks, row.path, row.target.rpartition(".")[0], row.becomes

    for (marks, *_), some in groupby(items, key=alike):
        yield marks, [row for _, row in some]  # type: ignore[misc]


def _numbers(rows: Sequence[PatchRow]) -> str:
    lines_of = list(dict.fromkeys(row.line for row in rows))
    return ", ".join(map(str, lines_of[:2])) + (f" +{len(lines_of) - 2}" if len(lines_of) > 2 else "")


def _what(rows: Sequence[PatchRow]) -> str:
    names = list(dict.fromkeys(row.target for row in rows))
    return short(names[0]) if len(names) == 1 else f"{leaf(names[0].rpartition('.')[0])}, {len(names)} names"


def _fit(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 3]}..."


def _short_paths(paths: Iterable[str]) -> dict[str, str]:
    """Each path as short as it is unique among these."""
    every = list(dict.fromkeys(paths))
    found = {}
    for path in every:
        parts = path.split("/")
        tails = ("/".join(parts[-length:]) for length in range(1, len(parts) + 1))
        found[path] = next(
            tail for tail in tails if tail == path or sum(f"/{other}".endswith(f"/{tail}") for other in every) == 1
        )
    return found


# -- what happens ----------------------------------------------------------------------------------------------------


@record
class Paragraph:
    """One cause with all of its places."""

    event: Event
    text: str
    lines: tuple[int, ...]
    more: int = 0  # places in other files


def _events(group: Group, report: UpgradeReport, every: bool) -> Iterator[Line]:
    told = _by_cause(group.events)
    style = "bold red" if group.key != "differs" else "bold yellow"
    yield [(f"{group.head} ({len(told)})", style)]
    for said in told if every else told[:_MOST_EVENTS]:
        yield from _told(said, group, report)
    if len(told) > _MOST_EVENTS and not every:
        yield [(f"  and {len(told) - _MOST_EVENTS} more: --all", "dim")]


def _by_cause(events: Iterable[Event]) -> list[Paragraph]:
    """What several lines share is said once."""
    found: dict[tuple[object, ...], Paragraph] = {}
    for event in events:
        text, place = sentence(event.effect), event.effect.place
        key = (text, event.releases, event.row is not None and id(event.row), event.is_called)
        known = found.get(key)
        if known is None:
            found[key] = Paragraph(event, text, (place.line,))
        elif known.event.effect.place.path == place.path:
            found[key] = replace(known, lines=tuple(dict.fromkeys((*known.lines, place.line))))
        else:
            found[key] = replace(known, more=known.more + 1)
    return list(found.values())


def _told(said: Paragraph, group: Group, report: UpgradeReport) -> Iterator[Line]:
    """Where and when, what, and what to do."""
    event, effect = said.event, said.event.effect
    place = report.from_here(effect.place.path) + ":" + ",".join(map(str, said.lines[:3]))
    place += f" and {said.more} more" if said.more else ""
    when = _when(event, effect)
    where = ", ".join(event.releases)
    room = width() - 2 - len(place) - len(where) - 4
    has_room = bool(when) and len(when) <= room
    yield [("  ", ""), (place, "cyan"), (f"  {when}" if has_room else "", ""), (f"  {where}", "dim")]
    is_told = has_room or not when or (event.is_called and effect.place.when == When.CALL)
    yield from wrapped(said.text if is_told else f"{said.text} ({when})", 6)
    if event.row is not None and group.key != "differs":
        advice = _ADVICE.get(event.row.becomes)
        if advice:
            yield from wrapped(advice, 6, style="green")


_ADVICE = {
    "moves": "`unpatch migrate` rewrites the patch.",
    "goes": "`unpatch migrate` deletes the patch.",
    "by hand": "`unpatch explain` gives the steps.",
}


def _when(event: Event, effect: Effect) -> str:
    if not effect.raises:
        return ""
    return trigger(effect) if event.is_called else f"nothing here calls {event.function}"
