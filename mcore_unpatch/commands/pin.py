"""`unpatch pin`: record what the patches that stay were written for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcore_unpatch.commands import options as opt
from mcore_unpatch.commands.guard import EXIT_CLEAN, guarded, note, reporting
from mcore_unpatch.errors import UsageError

if TYPE_CHECKING:
    from mcore_unpatch.library.model import Model
    from mcore_unpatch.pins import Lock, Pin
    from mcore_unpatch.survey.survey import ScanOptions

What = Annotated[
    list[str] | None,
    typer.Argument(
        help="The repository, or files and folders in it. A name such as megatron.core.utils.get_model_config pins "
        "code that you use but do not patch. [default: .]",
        show_default=False,
    ),
]
Why = Annotated[str | None, typer.Option(help="Why the patches stay.", show_default=False)]
Until = Annotated[
    str | None,
    typer.Option(
        help="How long they stay: a release such as 0.20, a pull request, or a probe of yours, module:function.",
        show_default=False,
    ),
]
ReviewBy = Annotated[
    str | None, typer.Option(help="The date of the next review, such as 2027-01-31.", show_default=False)
]
Owner = Annotated[str | None, typer.Option(help="Who to ask about them.", show_default=False)]


@guarded
def pin(
    what: What = None,
    why: Why = None,
    until: Until = None,
    owner: Owner = None,
    review_by: ReviewBy = None,
    exclude: opt.Exclude = None,
    target_mcore: opt.TargetMcore = None,
    stack: opt.Stack = None,
    jobs: opt.Jobs = None,
) -> int:
    """Record in `unpatch.lock` what each remaining patch replaces.

    And why it stays. `unpatch check` then fails when Megatron changes it. After an upgrade, review what changed and run
    `unpatch pin` again; reasons, deadlines, owners, dependencies and comments are kept.
    Exit code: 0 if pinned, 2 if the release lacks a name or a file could not be analysed.
    """
    from dataclasses import replace

    from mcore_unpatch import pins
    from mcore_unpatch.gate import pinned
    from mcore_unpatch.megatron.roots import within
    from mcore_unpatch.report.lines import count, show, wrapped
    from mcore_unpatch.repository import git
    from mcore_unpatch.repository.atomic import replace_file
    from mcore_unpatch.repository.discover import top_of

    names = [one for one in what or [] if within(one)]
    paths = [Path(one) for one in what or [] if not within(one)]
    _, options = opt.combine(paths, None, None, exclude, target_mcore, jobs, stack=stack)
    top = top_of(paths)
    file = top / pins.LOCK
    known = pins.load(file) if pinned.lock_file(top) else pins.Lock()
    given = {"why": why, "until": until, "owner": owner, "review_by": review_by}
    said: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if review_by:
        from datetime import date

        try:
            date.fromisoformat(review_by)
        except ValueError:
            raise UsageError(f"--review-by {review_by}: pass a date such as 2027-01-31.") from None
    release, *others = releases_in_use(top, options, known)
    # Without a path, patches stay as they are pinned.
    chosen, number = dict(known.pins), 0
    if paths or not names:
        chosen, number = _patches(paths, options, known, release, {} if names else said)
    for name in names:
        one = pins.pin(name, release, name in chosen and chosen[name].patched, chosen.get(name))
        if one is None:
            raise UsageError(f"megatron-core {release.label} has no {name}; nothing was pinned.")
        chosen[name] = replace(one, **said)
    for name in sorted({name for one in chosen.values() for name in one.leans_on} - set(chosen)):
        if leaned_on := pins.pin(name, release, False):
            chosen[name] = leaned_on
        else:
            note(f"depends_on names {name}, which megatron-core {release.label} does not define.")
    chosen = {
        name: replace(one, also=pins.elsewhere(one, others)) if one.release == release.label else one
        for name, one in chosen.items()
    }
    for name in sorted(set(known.pins) - set(chosen)):
        note(f"Dropped {name}, which is no longer patched{f': {known.pins[name].why}' if known.pins[name].why else ''}")
    if not chosen and not known.pins:
        note("There is nothing to pin: no patch that stays was found, and no name was given. Nothing was written.")
        return EXIT_CLEAN
    before = file.read_text(encoding="utf-8") if pinned.lock_file(top) else ""
    replace_file(file, pins.Lock(chosen).text(before))
    changed = [name for name, one in chosen.items() if name in known.pins and known.pins[name].digest != one.digest]
    patched = sum(one.patched for one in chosen.values())
    parts = [f"{count(patched, 'name')} that {count(number, 'patch replaces', 'patches replace')}"] if number else []
    parts += [f"{count(len(chosen) - patched, 'name')} that they stand on"] if number and patched < len(chosen) else []
    with reporting(f"{pins.LOCK} was written, but "):
        told = (
            f"{pins.LOCK} pins {' and '.join(parts) or count(len(chosen), 'name')}, on megatron-core {release.label}; "
        )
        show(wrapped(f"{told}{len(changed)} changed.", 0))
        if not before:
            show(wrapped(f"Commit {pins.LOCK}, and say in it why each patch stays.", 0))
            show(wrapped(f"unpatch check{' --base main' if git.toplevel(top) else ''}", 0, "Next: ", "bold"))
    return EXIT_CLEAN


def _patches(
    paths: list[Path], options: ScanOptions, known: Lock, release: Model, said: dict[str, Any]
) -> tuple[dict[str, Pin], int]:
    """The pins of the patches that stay, and how many these are; what can be deleted needs none.

    Pins of what was not looked at are kept.
    """
    from dataclasses import replace

    from mcore_unpatch import pins
    from mcore_unpatch.commands.output import Progress, write_asides
    from mcore_unpatch.findings.finding import NO_PATCHES
    from mcore_unpatch.scanner.names.project import Project
    from mcore_unpatch.survey.scan import report_of
    from mcore_unpatch.survey.survey import Survey
    from mcore_unpatch.upgrade.run import patches_of, stands_on

    with Progress() as progress:
        survey = Survey(paths, replace(options, base=None, baseline=None, lock=None), progress)
        report = report_of(survey)
    write_asides(report)
    if report.errors:
        raise UsageError("Some files could not be analysed, so nothing was pinned; fix or --exclude them.")
    whole = survey.found.top in map(Path.resolve, survey.paths)
    read = {name for one in known.pins.values() for name in one.stands_on}  # read anew: nobody asked for these
    chosen = {
        name: one
        for name, one in known.pins.items()
        if not (whole and (one.patched or (name in read and not (one.why or one.owner))))
    }
    used: dict[str, dict[str, None]] = {}
    for finding, case in patches_of(report, Project(survey.files.exists, survey.files.read, survey.parsed)):
        if case is not None:
            used.setdefault(finding.target, {}).update(dict.fromkeys(stands_on(case, release)))
    patches = [finding for finding in report.findings if finding.shape not in NO_PATCHES]
    stay = {finding.target for finding in patches if finding.verdict != "delete"} | set(known.pins)
    lacking: dict[str, None] = {}
    for finding in patches:
        name = finding.target
        if name not in stay:
            continue
        if one := pins.pin(name, release, True, known.pins.get(name)):
            chosen[name] = replace(one, stands_on=tuple(used.get(name, ())), **said)
        elif name in known.pins:  # what people wrote of it stays, and `check` says that it is gone
            chosen[name] = known.pins[name]
        else:
            lacking[name] = None
    if needless := [f"{report.from_here(one.path)}:{one.line}" for one in patches if one.target not in stay]:
        can = (
            "1 patch can be deleted and needs"
            if len(needless) == 1
            else f"{len(needless)} patches can be deleted and need"
        )
        note(f"{can} no pin (`unpatch scan --verbose` says why): {', '.join(needless)}.")
    if lacking:
        short = ", ".join(".".join(name.split(".")[-2:]) for name in lacking)
        note(f"megatron-core {release.label} does not define what is patched here, so it is not pinned: {short}.")
        if not any(one.patched for one in chosen.values()):
            raise UsageError(f"None of the patched names is in megatron-core {release.label}; nothing was pinned.")
    return chosen, sum(finding.target in chosen for finding in patches)


def releases_in_use(top: Path, options: ScanOptions, lock: Lock) -> list[Model]:
    """The releases in use, the newest first: the one given, or those that the repository runs, or that of the lock."""
    from mcore_unpatch.library.sources import model_of
    from mcore_unpatch.megatron import known
    from mcore_unpatch.megatron.roots import LIBRARY
    from mcore_unpatch.megatron.versions import parse_version
    from mcore_unpatch.stacks.stacks import Stacks

    if options.source is not None:
        return [model_of(LIBRARY, options.source.label, options.source.files)]
    asked = Stacks(top, options.megatron, options.named_by, options.stacks).asked("")
    if asked is not None:
        return list(dict.fromkeys(known.newest(version) for version in reversed(asked.versions)))
    if lock.releases:
        return [known.newest(parse_version(next(reversed(lock.releases))))]
    raise UsageError("No file in this repository pins megatron-core; pass the release in use with --target-mcore.")
