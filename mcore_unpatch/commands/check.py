"""`unpatch check`: the gate for CI."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from mcore_unpatch import pins
from mcore_unpatch.commands import options as opt
from mcore_unpatch.commands.guard import EXIT_CLEAN, EXIT_ERROR, EXIT_FINDINGS, guarded, note
from mcore_unpatch.commands.options import DEFAULT_BASELINE, option
from mcore_unpatch.commands.output import Progress, write
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import Report
from mcore_unpatch.findings.rules import SWITCHED_OFF, Selection
from mcore_unpatch.gate import baseline as baselines, compare, pinned
from mcore_unpatch.gate.switches import Gate
from mcore_unpatch.report.lines import count
from mcore_unpatch.report.text import lines, without_baseline
from mcore_unpatch.repository.config import Config, load_at
from mcore_unpatch.repository.discover import top_of
from mcore_unpatch.repository.paths import from_here
from mcore_unpatch.stacks.stacks import Stacks
from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import PinnedOn, ScanOptions

Base = Annotated[str | None, option("--base", "Report only what is new since the merge base with this commit.")]
_KNOWN = f"Known findings to accept, as counts per file and rule. [default: {DEFAULT_BASELINE}, if any]"
Baseline = Annotated[Path | None, option("--baseline", _KNOWN)]
_WRITE = f"Write the current findings to the baseline. [default: {DEFAULT_BASELINE}]"
WriteBaseline = Annotated[bool, option("--write-baseline", _WRITE)]
_CONFIG = "Take the configuration of the base, not that of the change."
ConfigFromBase = Annotated[bool, option("--config-from-base", _CONFIG)]
RequirePins = Annotated[bool, option("--require-pins", "Fail for every patch that unpatch.lock does not pin.")]


@guarded
def check(
    paths: opt.Paths = None,
    base: Base = None,
    baseline: Baseline = None,
    write_baseline: WriteBaseline = False,
    config_from_base: ConfigFromBase = False,
    require_pins: RequirePins = False,
    output_format: opt.Format = None,
    quiet: opt.Quiet = False,
    select: opt.Select = None,
    ignore: opt.Ignore = None,
    exclude: opt.Exclude = None,
    target_mcore: opt.TargetMcore = None,
    stack: opt.Stack = None,
    jobs: opt.Jobs = None,
    no_cache: opt.NoCache = False,
) -> int:
    """Fail on patches of Megatron Core, or only on new ones.

    Exit code: 0 clean, 1 findings, 2 a usage error, an unreadable configuration or a file that could not be analysed.
    """
    if base == "":  # a variable of CI that is not set would else compare with nothing
        raise UsageError("--base is empty: name a branch or a commit")
    paths = paths or []
    top = top_of(paths)
    if config_from_base and base is None:
        raise UsageError("--config-from-base takes nothing from the change, not even its base: name one with --base")
    earlier = load_at(opt.start(paths), top, compare.merge_bases(top, base)[0]) if config_from_base and base else None
    config, options = opt.combine(paths, select, ignore, exclude, target_mcore, jobs, base, baseline, earlier, stack)
    known = top / DEFAULT_BASELINE
    if options.baseline is None and known.is_file() and not known.is_symlink():
        options = replace(options, baseline=known)
    gate = None if write_baseline else _gate(options, config, paths, top, ignore, own_base=base is None)
    style = opt.output_format(output_format, config)
    fixes = style == "html"  # whose totals say what becomes of each
    options = replace(options, gate=gate, cache=not no_cache, fixes=fixes)
    with Progress() as progress:
        options = replace(options, lock=_lock(top, options, require_pins))
        report = scan(paths, replace(options, base=None, baseline=None) if write_baseline else options, progress)
    if write_baseline:
        return _write_baseline(report, options.baseline)
    if report.possible:
        them = "one" if report.possible == 1 else "ones"
        report.notes.append(f"{report.possible} possible {them}, by a method's name alone, not counted")
    nothing_accepted = options.base is None and options.baseline is None
    write(report, style, lines=without_baseline if nothing_accepted else lines, quiet=quiet)
    if report.errors:
        return EXIT_ERROR
    return EXIT_FINDINGS if report.findings else EXIT_CLEAN


def _gate(
    options: ScanOptions, config: Config, paths: list[Path], top: Path, ignore: list[str] | None, own_base: bool
) -> Gate | None:
    """What tells of the gate being switched off since the base, unless the user or the base says not to."""
    if options.base is None:
        return None
    revisions = compare.merge_bases(top, options.base)
    before = tuple(load_at(opt.start(paths), top, revision) for revision in revisions)
    if SWITCHED_OFF not in Selection.parse([], ignore or before[0].list("ignore")):
        return None
    return Gate(top, revisions, config, before, options.baseline, own_base)


def _lock(top: Path, options: ScanOptions, required: bool) -> PinnedOn | None:
    """The lock of the repository, held to the release in use."""
    file = pinned.lock_file(top)
    if file is None:
        if required:
            raise UsageError(f"There is no {pins.LOCK} in {top}: write one with `unpatch pin`.")
        return None
    known = pins.load(file)
    stacks = Stacks(top, options.megatron, options.named_by, options.stacks)
    releases, _ = pinned.releases_in_use(stacks, options.source, known)
    for line in pinned.notes(known, releases):
        note(line)
    return PinnedOn(file, tuple(releases), required)


def _write_baseline(report: Report, named: Path | None) -> int:
    if report.errors:
        first = report.errors[0]
        failed = f"{len(report.errors)} files could not be analysed; the first is {first.path}: {first.message}"
        raise UsageError(f"no baseline was written: {failed}")
    target = named or Path(report.top) / DEFAULT_BASELINE
    target = target.parent.resolve() / target.name
    accepted = [one for one in report.findings if not one.rule.startswith("MCU8")]  # a pin that fails is never one
    baselines.write(target, accepted, Path(report.root))
    reads = " Commit it: `unpatch check` accepts these from now on." if target.name == DEFAULT_BASELINE else ""
    note(f"Wrote {count(len(accepted), 'finding')} to {from_here(target)}.{reads}")
    return EXIT_CLEAN
