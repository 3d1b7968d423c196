"""`unpatch upgrade`: what another Megatron release does to each patch."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from mcore_unpatch.commands import options as opt
from mcore_unpatch.commands.guard import EXIT_CLEAN, EXIT_ERROR, EXIT_FINDINGS, guarded, note, reporting
from mcore_unpatch.commands.options import option
from mcore_unpatch.commands.output import Progress, into, write_asides
from mcore_unpatch.errors import UsageError
from mcore_unpatch.megatron import packed
from mcore_unpatch.megatron.megatrons import Megatrons
from mcore_unpatch.megatron.versions import RELEASES, Version, parse_version, show as show_version
from mcore_unpatch.records import record, replace
from mcore_unpatch.report import pages, services, upgrade_text as text
from mcore_unpatch.report.lines import OutputFormat, show
from mcore_unpatch.report.upgrade_data import as_findings, as_json
from mcore_unpatch.repository.discover import project_root
from mcore_unpatch.repository.paths import printable_lines
from mcore_unpatch.stacks.at_hand import Sources, cached, fetch as get
from mcore_unpatch.stacks.revision import Stack
from mcore_unpatch.stacks.sources import INFO, MegatronSource, Target, installed_source, target
from mcore_unpatch.stacks.stacks import Stacks
from mcore_unpatch.survey.survey import ScanOptions
from mcore_unpatch.upgrade import columns as choose, ranges
from mcore_unpatch.upgrade.columns import Column
from mcore_unpatch.upgrade.copies import Changes, changes
from mcore_unpatch.upgrade.run import Reading, UpgradeReport, upgrade as judged

_NAMED = "a release, a tag, a branch, a commit, a checkout, a wheel, or CLONE@COMMIT."
From = Annotated[str | None, option("--from", f"The Megatron in use: {_NAMED} [default: what the repository runs]")]
To = Annotated[str | None, option("--to", f"The Megatron to upgrade to: {_NAMED} [default: the newest known]")]
_FETCH = "Ask the package index for sources that are missing, and keep them in a cache."
Fetch = Annotated[bool, option("--fetch", _FETCH)]
_DIFF = "Show for each copied function what upstream changed, and what you changed."
Diff = Annotated[bool, option("--diff", _DIFF)]
_CHECK = "Exit with 1 if something raises or silently changes, for a scheduled job."
Check = Annotated[bool, option("--check", _CHECK)]
_MATRIX = "Tell for each release of a range which lines raise: 0.16..0.19.2, or 0.16..main with --to PATH."
Matrix = Annotated[str | None, option("--matrix", _MATRIX)]
All = Annotated[bool, option("--all", "List everything: also what runs as written, and what one screen does not hold.")]


@guarded
def upgrade(
    paths: opt.Paths = None,
    from_release: From = None,
    to_release: To = None,
    stack: opt.Stack = None,
    fetch: Fetch = False,
    diff: Diff = False,
    check: Check = False,
    matrix: Matrix = None,
    every: All = False,
    output_format: opt.Format = None,
    output_file: opt.OutputFile = None,
    exclude: opt.Exclude = None,
) -> int:
    """Show what another Megatron release breaks.

    Lists every patch and every use of Megatron: what raises first, then what gives other numbers.
    Exit code: 0 if everything was analysed, 2 if not; 1 with --check if something raises or silently changes.
    """
    config, options = opt.combine(paths, exclude=exclude, stack=stack)
    style = opt.output_format(output_format, config)
    if matrix is not None and diff:
        raise UsageError("--matrix only reports; run --diff for one release.")
    options = replace(options, base=None, baseline=None, fixes=matrix is None, source=None)
    with Progress() as progress:
        chosen = _megatrons(paths, options, from_release, to_release, matrix)
        reading = Reading(paths or [], chosen.judged(options), chosen.megatrons, progress)
        if matrix is not None:
            _write_ranges(reading, chosen, style, output_file)
            return EXIT_ERROR if reading.scanned.errors else EXIT_CLEAN
        outcome = judged(reading, [*chosen.used, chosen.next])
        outcome.older = chosen.older
        if not any(one.label.endswith("+") for one in chosen.used):  # else a source was read
            outcome.scanned.say_what_is_carried("--from")
        copies = {}
        if diff:
            sources = _sources(outcome, chosen.sources, fetch)
            made = ((row, changes(row, outcome, sources)) for row in outcome.rows)
            copies = {(row.path, row.line, row.target): change for row, change in made if change is not None}
        elif style is not OutputFormat.html:
            outcome.scanned.proposed = dict  # making the edits takes as long as the report
        with reporting(), into(output_file):
            _write(outcome, style, copies, every)
        write_asides(outcome.scanned)
    if outcome.scanned.errors:
        return EXIT_ERROR
    label = outcome.next.label
    urgent = any(label in event.releases for group in text.groups(outcome) for event in group.events)
    return EXIT_FINDINGS if check and urgent else EXIT_CLEAN


def _write(
    outcome: UpgradeReport, style: OutputFormat, copies: dict[tuple[str, int, str], Changes], every: bool
) -> None:
    """Print the report in the format asked for."""
    if style is OutputFormat.text:
        show(text.lines(outcome, every, copies))
    elif style is OutputFormat.json:
        print(json.dumps(as_json(outcome), indent=2))
    elif style is OutputFormat.html:
        print(printable_lines(pages.of_upgrade(outcome, copies)), end="")
    elif style is OutputFormat.github:
        print("\n".join(services.github(as_findings(outcome), "warning")))
    else:
        make = services.sarif if style is OutputFormat.sarif else services.gitlab
        print(json.dumps(make(as_findings(outcome)), indent=2))


def _write_ranges(reading: Reading, chosen: _Chosen, style: OutputFormat, output_file: Path | None) -> None:
    """What raises on each release of a range."""
    in_use, fitting = chosen.used[-1].label, ranges.fits(reading, chosen.range)
    with reporting(), into(output_file):
        if style is OutputFormat.text:
            show(text.ranges(fitting, in_use, reading))
        else:
            print(json.dumps(ranges.as_data(fitting, in_use), indent=2))
    write_asides(reading.scanned)


# -- which Megatrons -------------------------------------------------------------------------------------------------


@record
class _Chosen:
    """The Megatrons of a report."""

    used: list[Column]
    next: Column
    megatrons: Megatrons
    sources: dict[str, MegatronSource]  # by the label that stands for each
    older: int = 0
    range: tuple[Column, ...] = ()
    named: Target | None = None  # by --from

    def judged(self, options: ScanOptions) -> ScanOptions:
        """The options, for the Megatron that the user said is in use."""
        if self.named is None:
            return options
        return replace(options, megatron=(self.named.revision,), named_by="named by --from", stacks=())


def _megatrons(
    paths: list[Path] | None, options: ScanOptions, old: str | None, new: str | None, matrix: str | None
) -> _Chosen:
    """Those in use, or the one of --from, and the one to move to; raises `UsageError` where nothing is to compare."""
    labels, with_main = ranges.releases_of(matrix) if matrix is not None else ([], False)
    carried = "" if old else _carried(paths, options)
    start = target(old or carried) if old or carried else None
    to = target(new or ("main" if with_main or _is_newest(start, paths, options) else RELEASES[-1]))
    named_ones = [named for named in (start, to) if named is not None and named.is_read]
    megatrons = Megatrons([named.read() for named in named_ones])
    known = dict(zip(map(id, named_ones), megatrons.sources, strict=True))

    def column(named: Target, kinds: tuple[str, ...] = ()) -> Column:
        if named.is_read:
            name, words = "", f"{named.revision.given}, read from its source"
            if named.branch is not None:
                name, words = named.branch.name, named.revision.words
            return Column(known[id(named)], kinds, words, name)
        version = choose.stands_for(named.revision)
        assert version is not None
        words = "" if named.revision.certain else f"{named.revision.name}, {named.revision.words}"
        return Column(megatrons.release(version), kinds, words)

    used, older = ([column(start)], 0) if start is not None else _in_use(paths, options, megatrons)
    last = column(to, (choose.NEXT,))
    in_range = tuple(Column(megatrons.release(parse_version(label))) for label in labels)
    beyond = (last,) if with_main and last.label not in labels else ()
    if with_main and not beyond:
        note(f"{last.words or last.label} is judged as {last.label}.")
    named_so = {known[id(named)].label: named.source for named in named_ones if named.source is not None}
    chosen = _Chosen(used, last, megatrons, named_so, older, in_range + beyond, start if old else None)
    if matrix is not None:
        return chosen
    if not old and not to.is_read:  # what is as new already takes no step
        ahead = [one for one in used if _plain(one) >= _plain(last)]
        if len(ahead) == len(used):
            raise UsageError(_nothing(show_version(_plain(used[-1])), old))
        chosen = replace(chosen, used=[one for one in used if one not in ahead], older=older + len(ahead))
    if any(one.label == last.label for one in chosen.used):
        raise UsageError(_nothing(last.label, old))
    return chosen


def _is_newest(start: Target | None, paths: list[Path] | None, options: ScanOptions) -> bool:
    """Whether the newest release is in use, so that main is what comes next."""
    if packed.branch_named("main") is None:
        return False
    if start is not None:
        return not start.is_read and choose.stands_for(start.revision) == parse_version(RELEASES[-1])
    running = _running(paths, options)[1]
    known = [choose.stands_for(stack.revision) or parse_version(RELEASES[-1]) for stack in running]
    return bool(known) and min(known) >= parse_version(RELEASES[-1])


def _plain(column: Column) -> Version:
    """The release of a column; `0.16.0+` is a source of 0.16.0 that was read."""
    return column.release.version


def _nothing(label: str, old: str | None) -> str:
    runs = f"{label} is what {'--from names' if old else 'the repository runs'}"
    return f"{runs}, and no other release than --to: there is nothing to compare. Pass another --to."


def _running(paths: list[Path] | None, options: ScanOptions) -> tuple[Stacks, tuple[Stack, ...]]:
    """The stacks of the repository, and those of what is asked about."""
    folder = (paths or [Path()])[0].resolve()
    top = project_root(folder if folder.is_dir() else folder.parent)
    stacks = Stacks(top, options.megatron, options.named_by, options.stacks)
    inside = folder.relative_to(top).as_posix()
    asked = stacks.below(inside if inside != "." else "")
    return stacks, asked.stacks if asked else ()


def _carried(paths: list[Path] | None, options: ScanOptions) -> str:
    """The Megatron that is part of the repository, where it runs no other: its release does not speak for it."""
    stacks, running = _running(paths, options)
    said = [said for stack in running for said in stack.said]
    if len(said) != 1 or said[0].source != "vendored":
        return ""
    note(f"The megatron.core in {posixpath.dirname(said[0].path)} is compared as it is.")
    return str(stacks.top / said[0].path.removesuffix(INFO))


def _in_use(paths: list[Path] | None, options: ScanOptions, megatrons: Megatrons) -> tuple[list[Column], int]:
    """The Megatrons that the repository runs, and how many older ones it names; raises `UsageError` where none."""
    stacks, running = _running(paths, options)
    used, older = choose.in_use(running, megatrons)
    for stack in running:
        if stack.versions:
            continue
        settle = stack.revision.settle.replace("--target-mcore", "--from")
        note(f"{stack} is {'left out' if used else f'judged as {RELEASES[-1]}'}: {stack.revision.words}; {settle}.")
    if not used and running:  # as `scan` and `pin` do
        words = f"{running[0].name}, {running[0].revision.words}"
        used = [Column(megatrons.release(parse_version(RELEASES[-1])), running[0].platforms, words)]
    if not used:
        hint = next((f" {stack} is only a hint." for stack in stacks.hints if stack.versions), "")
        raise UsageError(
            "No file in this repository says which release of megatron-core it runs; pass it with --from: a release, a "
            f"tag, a commit, a checkout, CLONE@COMMIT, or `installed`.{hint}"
        )
    return used, older


def _sources(outcome: UpgradeReport, given: Mapping[str, MegatronSource], may_fetch: bool) -> Sources:
    """The sources at hand: given, installed, or in the cache; what is missing is said, and its copies not compared."""
    copies = {row.copied.release for row in outcome.rows if row.copied is not None}
    installed = installed_source() if copies else None
    at_hand = {installed.label: installed.files} if installed is not None else {}
    at_hand |= {label: source.files for label, source in given.items()}
    wanted = {*copies, outcome.next.label} if copies else set()
    missing = sorted(release for release in wanted - set(at_hand) if not cached(release).is_dir())
    if missing and not may_fetch:
        are = "source of megatron-core {} is" if len(missing) == 1 else "sources of megatron-core {} are"
        note(f"The {are.format(', '.join(missing))} missing, so copies are not compared: add --fetch.")
    return Sources(at_hand, get if may_fetch else None)
