"""`unpatch upgrade`: what another Megatron release does to each patch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mcore_unpatch.commands import options as opt
from mcore_unpatch.commands.guard import EXIT_CLEAN, EXIT_ERROR, EXIT_FINDINGS, guarded, reporting

if TYPE_CHECKING:
    from mcore_unpatch.library.model import Model
    from mcore_unpatch.megatron.sources import MegatronSource
    from mcore_unpatch.upgrade.run import UpgradeReport
    from mcore_unpatch.upgrade.sources import Sources

From = Annotated[
    str | None,
    typer.Option(
        "--from", help="The megatron-core release in use. [default: the repository's pin]", show_default=False
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", help="The release to upgrade to. [default: the newest known]", show_default=False),
]
Mcore = Annotated[
    Path | None,
    typer.Option(
        "--mcore-to",
        "--mcore",
        help="Read the release to upgrade to from a checkout, a wheel or a folder: a newer release, or a fork.",
        show_default=False,
    ),
]
McoreFrom = Annotated[
    Path | None,
    typer.Option(
        "--mcore-from", help="Read the release in use from a checkout, a wheel or a folder.", show_default=False
    ),
]
Download = Annotated[bool, typer.Option("--download", help="Download missing sources with pip, into a cache.")]
Diff = Annotated[
    bool,
    typer.Option(
        "--diff",
        help="Show for each copied function what upstream changed, what you changed, and whether they conflict.",
    ),
]
Write = Annotated[
    bool,
    typer.Option("--write", help="Merge upstream's changes into the copies that have no conflict; `undo` reverts it."),
]
Check = Annotated[
    bool, typer.Option("--check", help="Exit with 1 if something raises or silently changes, for a scheduled job.")
]
All = Annotated[bool, typer.Option("--all", help="List everything: tests, patch files, what one screen does not hold.")]
AllowDirty = Annotated[bool, typer.Option("--allow-dirty", help="Write even if there are uncommitted changes.")]


@guarded
def upgrade(
    paths: opt.Paths = None,
    from_release: From = None,
    to_release: To = None,
    mcore: Mcore = None,
    mcore_from: McoreFrom = None,
    download: Download = False,
    diff: Diff = False,
    write: Write = False,
    check: Check = False,
    every: All = False,
    allow_dirty: AllowDirty = False,
    output_format: opt.Format = None,
    output_file: opt.OutputFile = None,
    exclude: opt.Exclude = None,
    jobs: opt.Jobs = None,
) -> int:
    """Show what another Megatron release breaks.

    Or silently changes, or no longer needs: every use of Megatron and every patch, what raises first.
    Exit code: 0 if everything was analysed, 2 if not; 1 with --check if something raises or silently changes.
    """
    from mcore_unpatch.commands.output import Progress, into, write_asides
    from mcore_unpatch.upgrade import merge as merging, report as written
    from mcore_unpatch.upgrade.run import upgrade as run

    config, options = opt.combine(paths, None, None, exclude, None, jobs)
    style = opt.output_format(output_format, config)
    with Progress() as progress:
        new, source = _release("--to", to_release, mcore)
        old, old_source = _release("--from", from_release or _pinned(paths), mcore_from)
        outcome = run(paths or [], options, old, new, source, progress)
        merges = []
        if diff or write:
            sources = _sources(outcome, [one for one in (source, old_source) if one], download)
            merges = [(fate, made) for fate in outcome.fates if (made := merging.merge(fate, outcome, sources))]
        if write:
            merging.apply(outcome, merges, allow_dirty)
        with reporting(), into(output_file):
            written.write(outcome, style, merges if diff else [], every)
        if write:
            written.write_merged(merges)
        write_asides(outcome.scanned)
    if outcome.scanned.errors:
        return EXIT_ERROR
    return EXIT_FINDINGS if check and outcome.needs_work else EXIT_CLEAN


def _release(option: str, name: str | None, place: Path | None) -> tuple[Model, MegatronSource | None]:
    """The model of a release, and its source where that is at hand."""
    from mcore_unpatch.errors import UsageError
    from mcore_unpatch.library.sources import model_of
    from mcore_unpatch.megatron.roots import LIBRARY
    from mcore_unpatch.megatron.sources import known_model, source_at
    from mcore_unpatch.megatron.versions import RELEASES

    if place is not None:
        source = source_at(place)
        return model_of(LIBRARY, source.label, source.files), source
    if name is None and option == "--from":
        raise UsageError("No file in this repository pins megatron-core; pass the release in use with --from.")
    return known_model(name or RELEASES[-1]), None


def _sources(outcome: UpgradeReport, given: list[MegatronSource], may_download: bool) -> Sources:
    from mcore_unpatch.errors import UsageError
    from mcore_unpatch.upgrade.sources import Sources, download

    at_hand = {source.label: source.files for source in given}
    copies = {fate.copy.release for fate in outcome.fates if fate.copy}
    missing = sorted({*copies, outcome.new.label} - set(at_hand)) if copies else []
    if missing and not may_download:
        ways = {outcome.old.label: "--mcore-from", outcome.new.label: "--mcore-to"}
        options = [f"{ways[one]} PATH" for one in missing if one in ways]
        instead = f", or {' and '.join(options)}" if len(options) == len(missing) else ""
        are = "source of megatron-core {} is" if len(missing) == 1 else "sources of megatron-core {} are"
        raise UsageError(f"The {are.format(', '.join(missing))} missing: add --download{instead}.")
    return Sources(at_hand, download if may_download else None)


def _pinned(paths: list[Path] | None) -> str | None:
    """The release that the repository pins, if any."""
    from mcore_unpatch.discover import project_root
    from mcore_unpatch.megatron.versions import show
    from mcore_unpatch.requirements import Requirements

    folder = (paths or [Path()])[0].resolve()
    top = project_root(folder if folder.is_dir() else folder.parent)
    asked = Requirements(top).asked(f"{folder.relative_to(top).as_posix()}/")
    return show(asked.versions[0]) if asked else None
