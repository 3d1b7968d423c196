"""The upgrade report for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mcore_unpatch.commands.options import OutputFormat
from mcore_unpatch.megatron.versions import RELEASES
from mcore_unpatch.report.counts import groups
from mcore_unpatch.report.lines import Line, count, show, width, wrapped
from mcore_unpatch.upgrade import pages
from mcore_unpatch.upgrade.fates import Fate
from mcore_unpatch.upgrade.items import CHANGE, GO, HEADS, LATER, PATCH_FILES, RAISE, TESTS, Item, items
from mcore_unpatch.upgrade.mend import Mended
from mcore_unpatch.upgrade.merge import Merge
from mcore_unpatch.upgrade.run import UpgradeReport

_STYLES = {RAISE: "bold red", CHANGE: "bold yellow", GO: "bold green", LATER: "bold"}
_MOST = {RAISE: 8, CHANGE: 5, GO: 2, LATER: 2}  # that are listed of each: one screen


def write(
    report: UpgradeReport, style: OutputFormat, merges: Sequence[tuple[Fate, Merge]] = (), every: bool = False
) -> None:
    """Print the report in the format asked for; text shows the merges as well."""
    known = items(report)
    if style is OutputFormat.text:
        show(lines(report, known, dict(_by_place(merges)), every))
    elif style is OutputFormat.markdown:
        print(pages.markdown(report, known, list(closing(report, known))), end="")
    elif style is OutputFormat.github:
        from mcore_unpatch.report import github

        print("\n".join(github.lines(pages.as_findings(report, known), "warning")))
    elif style is OutputFormat.concise:
        from mcore_unpatch.report import concise

        show(concise.lines(pages.as_findings(report, known)))
    elif style is OutputFormat.html:
        print(pages.html(report, known, " ".join(closing(report, known)), merges), end="")
    else:
        import json

        print(json.dumps(pages.data(report, known, style), indent=2))


def write_changed(
    paths: Sequence[str], merges: Sequence[tuple[Fate, Merge]], mended: Sequence[Mended], markers: bool
) -> None:
    """Say what was written, and of what was not, why."""
    done = len({(one.use.path, one.use.statement.line) for one in mended if one.edits and one.use.path in paths})
    clean = sum(made.is_clean for _, made in merges)
    conflicts = sum(bool(made.conflicts) for _, made in merges)
    said = [f"Mended {count(done, 'line')}"] if done else []
    said += [f"merged upstream's changes into {count(clean, 'copy', 'copies')}"] if clean else []
    said += [f"wrote {count(conflicts, 'copy', 'copies')} with conflicts to resolve"] if conflicts and markers else []
    text = "; ".join(said)
    show(
        wrapped(f"{text[:1].upper()}{text[1:]}. `unpatch undo` reverts it." if said else "Nothing was written.", 0),
        True,
    )
    if conflicts and not markers:
        text = f"{count(conflicts, 'copy has', 'copies have')} conflicts; --conflict-markers writes them as git does."
        show(wrapped(text, 0), stderr=True)
    left = [one for one in mended if one.why_not or one.use.path not in paths]
    for one in left:
        where = f"{one.use.path}:{one.use.statement.line}"
        show(wrapped(f"Not mended: {where}: {one.why_not or 'the result would not hold'}.", 0), stderr=True)


def lines(
    report: UpgradeReport, known: Sequence[Item], merges: Mapping[tuple[str, int], Merge], every: bool
) -> Iterator[Line]:
    """The report, line by line: what raises first; `every` leaves nothing out."""
    yield [(report.from_to, "bold")]
    for group, head in HEADS.items():
        members = [item for item in known if item.group == group]
        if not members:
            continue
        shown = [item for item in members if every or not item.folded]
        yield []
        yield [(f"{head} ({len(members)})", _STYLES[group])]
        for item in shown if every else shown[: _MOST[group]]:
            yield from _item(item, report, every)
            if item.fate is not None and (made := merges.get(_place(item.fate))):
                yield from _merge(made, report.new.label)
        if left := _left(members, shown, every, group):
            yield from wrapped(left, 2)
    yield []
    for text in closing(report, known):
        yield from wrapped(text, 0)


def _left(members: list[Item], shown: list[Item], every: bool, group: str) -> str:
    """What is not listed, as counts."""
    if every:
        return ""
    more = len(shown) - _MOST[group]
    counts = [f"{more} more"] if more > 0 else []
    folded = {kind: sum(item.folded == kind for item in members) for kind in (TESTS, PATCH_FILES)}
    counts += [f"{number} in {kind}" for kind, number in folded.items() if number]
    return f"and {', '.join(counts)}; --all lists them" if counts else ""


def _item(item: Item, report: UpgradeReport, every: bool) -> Iterator[Line]:
    where = "  " + report.scanned.from_here(item.path) + item.where.removeprefix(item.path)
    fits = len(where) + 2 + len(item.title) <= width()
    yield [(where, "cyan"), (f"  {item.title}" if item.title and fits else "", "")]
    if not fits:
        yield from wrapped(item.title, 6)
    first, *others = item.reasons or ("",)
    more = f" (and {count(len(others), 'more reason')})" if others and not every else ""
    for reason in [f"{first}{more}", *(others if every else ())]:
        yield from wrapped(reason, 6)
    if item.advice:
        yield from wrapped(item.advice, 6, "-> ", "green")


def _merge(made: Merge, release: str) -> Iterator[Line]:
    fits = "no conflict; --write merges them"
    if made.conflicts:
        fits = f"{count(made.conflicts, 'conflict')}; merge by hand"
    elif made.unknown:
        fits = f"no conflict, but the file lacks {', '.join(f'`{name}`' for name in made.unknown)}; import it first"
    elif made.imports:
        fits = f"no conflict; --write merges them and adds {count(len(made.imports), 'import')}"
    for head, text in ((f"upstream, {made.release} to {release}", made.upstream), ("yours", made.own)):
        yield [(f"      {head}: {'no change' if not text else ''}".rstrip(), "bold")]
        for line in text.splitlines()[2:]:
            yield [(f"        {line}", {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], ""))]
    yield from wrapped(fits if made.upstream else "nothing to merge", 6, "=> ", "bold")


def _place(fate: Fate) -> tuple[str, int]:
    return fate.finding.path, fate.finding.line


def _by_place(merges: Sequence[tuple[Fate, Merge]]) -> Iterator[tuple[tuple[str, int], Merge]]:
    return ((_place(fate), made) for fate, made in merges)


def closing(report: UpgradeReport, known: Sequence[Item]) -> Iterator[str]:
    """The last lines: what was read, what was not, and what to do next."""
    if not report.fates and not report.uses.read:
        yield f"No use of Megatron Core found in {count(report.scanned.files_scanned, 'file')}."
        return
    harmless = len(report.of("harmless"))
    urgent = [item for item in known if item.group in (RAISE, CHANGE)]
    patches = [item for item in urgent if item.fate is not None]
    found = groups(fate.finding for fate in report.fates)
    beside = {"tests": "in tests", "patch_files": "in patch files"}
    rest = "".join(f", {len(found[name])} {where}" for name, where in beside.items() if found[name])
    read = (
        f"{count(report.uses.read, 'use')} of Megatron in {count(report.uses.files, 'file')}"
        f" and {count(len(report.fates) - len(found['tests']) - len(found['patch_files']), 'patch', 'patches')}{rest}"
    )
    fine = f"; {count(harmless, 'patch is', 'patches are')} harmless" if harmless else ""
    yield f"Read: {read}{fine}."
    if missing := unread(report):
        yield f"Not read: {missing}."
    release = f"megatron-core {report.new.label}"
    if not urgent:
        yield f"Nothing that was read needs work before the move to {release}."
        return
    text = f"{count(len(urgent), 'place needs', 'places need')} work before you can {_move(report)} to {release}."
    safe = sum(item.fate is not None and item.fate.finding.fix == "safe" for item in patches)
    unsafe = sum(item.fate is not None and item.fate.finding.fix == "unsafe" for item in patches)
    moved = len({(one.path, one.statement.line) for one in report.uses.affected if one.can_be_mended})
    if moved:
        text += f" Next: the same command with --write mends {moved} of them."
    elif safe or unsafe:
        # Without a target, migrate does only what every Megatron that the repository runs today allows.
        target = report.new.label if report.new.label in RELEASES else "PATH"
        command = f"unpatch migrate --target-mcore {target}{'' if safe else ' --unsafe-fixes'}"
        text += f" Next: `{command}` does {safe or unsafe} of them."
    yield text


def _move(report: UpgradeReport) -> str:
    """Upgrade, unless both are known and the step leads back."""
    labels = (report.new.label, report.old.label)
    return (
        "go back"
        if set(labels) <= set(RELEASES) and RELEASES.index(labels[0]) < RELEASES.index(labels[1])
        else "upgrade"
    )


def unread(report: UpgradeReport) -> str:
    """What of the repository no release could be asked for, in words."""
    said = [
        f"{count(number, 'use')} of {package}, which megatron-core {report.old.label} does not carry"
        for package, number in report.uses.beyond.items()
    ]
    said += [f"{count(len(report.scanned.errors), 'file')} with errors"] if report.scanned.errors else []
    return "; ".join(said)
