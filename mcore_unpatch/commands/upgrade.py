"""`unpatch upgrade`: what another Megatron release does to each patch."""

from __future__ import annotations

import json
import posixpath
from pathlib import Path
from typing import Annotated

from mcore_unpatch.commands import options as opt
from mcore_unpatch.commands.guard import EXIT_CLEAN, EXIT_ERROR, EXIT_FINDINGS, guarded, note, reporting
from mcore_unpatch.commands.options import option
from mcore_unpatch.commands.output import Progress, into, write_asides
from mcore_unpatch.errors import UsageError
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import RELEASES, parse_version
from mcore_unpatch.report.lines import show
from mcore_unpatch.repository.discover import project_root
from mcore_unpatch.stacks.at_hand import Sources, cached, fetch as get
from mcore_unpatch.stacks.revision import Stack
from mcore_unpatch.stacks.sources import INFO, MegatronSource, installed_source, target
from mcore_unpatch.stacks.stacks import Stacks
from mcore_unpatch.survey.survey import ScanOptions
from mcore_unpatch.upgrade import matrix as ranges, report as written
from mcore_unpatch.upgrade.copies import changes
from mcore_unpatch.upgrade.fates import Step
from mcore_unpatch.upgrade.items import items, urgent
from mcore_unpatch.upgrade.run import UpgradeReport, each_release, upgrade as run

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
All = Annotated[bool, option("--all", "List everything: tests, patch files, what one screen does not hold.")]

_MOST_NOTES = 2  # on what stands for a commit or a branch


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
    jobs: opt.Jobs = None,
) -> int:
    """Show what another Megatron release breaks.

    Or silently changes, or no longer needs: every use of Megatron and every patch, what raises first.
    Exit code: 0 if everything was analysed, 2 if not; 1 with --check if something raises or silently changes.
    """
    config, options = opt.combine(paths, exclude=exclude, jobs=jobs, stack=stack)
    style = opt.output_format(output_format, config)
    if matrix is not None and diff:
        raise UsageError("--matrix only reports; run --diff for one release.")
    given: list[MegatronSource] = []
    with Progress() as progress:
        if matrix is not None:  # a range of releases, seen from the one in use
            labels, with_main = ranges.releases_of(matrix)
            if with_main and to_release is None:
                raise UsageError("--matrix to main needs its source: add --to PATH (a checkout, or CLONE@COMMIT).")
            first = (target(from_release).models() if from_release else _in_use(paths, options))[0]
            models = [known.model(label) for label in labels]
            models += target(to_release).models() if with_main and to_release else []
            reports = each_release(paths or [], options, first, models, progress)
            with reporting(), into(output_file):
                if style == "text":
                    show(ranges.lines(reports, first.label))
                else:
                    print(json.dumps(ranges.as_data(reports, first.label), indent=2))
            write_asides(reports[0].scanned)
            return EXIT_ERROR if reports[0].scanned.errors else EXIT_CLEAN
        (old, new), *also = _steps(paths, options, from_release, to_release, given)
        source = next((source for source in given if source.label == new.label), None)
        outcome = run(paths or [], options, old, new, source, progress, also)
        if not any(source.label == old.label for source in given):
            outcome.scanned.say_what_is_carried("--from")
        copies = []
        if diff:
            sources = _sources(outcome, given, fetch)
            copies = [(fate, made) for fate in outcome.fates if (made := changes(fate, outcome, sources))]
        if not diff:
            outcome.scanned.proposed = dict  # making the edits takes as long as the report
        with reporting(), into(output_file):
            written.write(outcome, style, copies, every)
        write_asides(outcome.scanned)
    if outcome.scanned.errors:
        return EXIT_ERROR
    return EXIT_FINDINGS if check and urgent(items(outcome)) else EXIT_CLEAN


def _steps(
    paths: list[Path] | None, options: ScanOptions, old: str | None, new: str | None, given: list[MegatronSource]
) -> list[Step]:
    """From each Megatron in use to each release that stands for the new one; `given` takes the sources at hand.

    Raises `UsageError` where there is nothing to compare.
    """
    to = target(new or RELEASES[-1])
    carried = "" if old else _carried(paths, options)
    start = target(old or carried) if old or carried else None
    given += [named.source for named in (to, start) if named is not None and named.source is not None]
    olds = start.models() if start else _in_use(paths, options)
    news = to.models()
    steps = [(old, other) for old in olds for other in news if not any(_same(old, each) for each in news)]
    if not old:  # what is as new already takes no step
        steps = [(model, other) for model, other in steps if parse_version(model.label) < parse_version(other.label)]
    if not steps:
        runs = f"{olds[-1].label} is what {'--from names' if old else 'the repository runs'}"
        raise UsageError(f"{runs}, and no other release than --to: there is nothing to compare. Pass another --to.")
    return steps


def _same(model: Model, other: Model) -> bool:
    """Whether two Megatrons are one: a fork may have the number of a release, and other code."""
    if model is other or model.label != other.label:
        return model is other
    names = set(model.facts)
    return names == set(other.facts) and all(model.facts[name].digest == other.facts[name].digest for name in names)


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


def _in_use(paths: list[Path] | None, options: ScanOptions) -> list[Model]:
    """The releases that the repository runs, the oldest first; raises `UsageError` where no file says one."""
    stacks, running = _running(paths, options)
    told = []
    versions = {version for stack in running for version in stack.versions}
    for stack in running:
        settle = stack.revision.settle.replace("--target-mcore", "--from")
        if not stack.versions and versions:
            told.append(f"{stack} is left out: {stack.revision.words}; {settle}.")
        elif not stack.versions:
            clone = f"../Megatron-LM@{stack.name.rpartition('@')[2]}"
            example = f" For example: unpatch upgrade --from {clone if 'its source' in settle else RELEASES[-3]}"
            way = settle if "which is here" in settle else f"{settle}.{example}"
            raise UsageError(f"The release of {stack} is not known ({stack.revision.words}): {way}")
        elif not stack.revision.certain:
            stand_in = " and ".join(dict.fromkeys(known.newest(version).label for version in stack.versions))
            told.append(f"{stack} is {stack.revision.words or 'a range'}: compared from {stand_in}.")
    if len(told) > _MOST_NOTES:
        many = f"{len(told)} Megatrons that you run are no releases"
        told = [f"{many}; `unpatch stacks` lists what each is compared from."]
    for line in told:
        note(line)
    if not versions:
        hint = next((f" {stack} is only a hint." for stack in stacks.hints if stack.versions), "")
        raise UsageError(
            "No file in this repository says which release of megatron-core it runs; pass it with --from: a release, a "
            f"tag, a commit, a checkout, CLONE@COMMIT, or `installed`.{hint}"
        )
    return list(dict.fromkeys(known.newest(version) for version in sorted(versions)))


def _sources(outcome: UpgradeReport, given: list[MegatronSource], may_fetch: bool) -> Sources:
    """The sources at hand: given, installed, or in the cache; what is missing is said, and its copies not compared."""
    copies = {fate.copy.release for fate in outcome.fates if fate.copy}
    installed = installed_source() if copies else None
    at_hand = {source.label: source.files for source in (*filter(None, [installed]), *given)}
    wanted = {*copies, outcome.new.label} if copies else set()
    missing = sorted(release for release in wanted - set(at_hand) if not cached(release).is_dir())
    if missing and not may_fetch:
        ways = {outcome.old.label: "--from", outcome.new.label: "--to"}
        options = [f"{ways[package]} PATH" for package in missing if package in ways]
        instead = f", or {' and '.join(options)}" if len(options) == len(missing) else ""
        are = "source of megatron-core {} is" if len(missing) == 1 else "sources of megatron-core {} are"
        note(f"The {are.format(', '.join(missing))} missing, so copies are not compared: add --fetch{instead}.")
    return Sources(at_hand, get if may_fetch else None)
