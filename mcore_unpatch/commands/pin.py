"""`unpatch pin`: record what the patches that stay were written for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcore_unpatch.commands import options as opt
from mcore_unpatch.commands.guard import EXIT_CLEAN, guarded, note, reporting

if TYPE_CHECKING:
    from mcore_unpatch.library.model import Model
    from mcore_unpatch.pins import Lock
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
    from mcore_unpatch.commands.output import Progress, write_asides
    from mcore_unpatch.errors import UsageError
    from mcore_unpatch.findings.finding import NO_PATCHES
    from mcore_unpatch.gate import pinned
    from mcore_unpatch.megatron.roots import within
    from mcore_unpatch.report.lines import count
    from mcore_unpatch.repository.atomic import replace_file
    from mcore_unpatch.repository.discover import project_root
    from mcore_unpatch.scanner.names.project import Project
    from mcore_unpatch.survey.scan import report_of
    from mcore_unpatch.survey.survey import Survey
    from mcore_unpatch.upgrade.run import patches_of, stands_on

    names = [one for one in what or [] if within(one)]
    paths = [Path(one) for one in what or [] if not within(one)]
    _, options = opt.combine(paths, None, None, exclude, target_mcore, jobs, stack=stack)
    start = (paths or [Path()])[0].resolve()
    top = project_root(start if start.is_dir() else start.parent)
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
    release = release_in_use(top, options, known)
    found: dict[str, pins.Pin] = {}
    lacking: list[str] = []
    if names and not paths:  # patches stay as they are pinned
        found |= known.pins
    else:
        with Progress() as progress:
            survey = Survey(paths, replace(options, base=None, baseline=None, lock=None), progress)
            report = report_of(survey)
        write_asides(report)
        if report.errors:
            raise UsageError("Some files could not be analysed, so nothing was pinned; fix or --exclude them.")
        whole = start == top
        read = {name for one in known.pins.values() for name in one.stands_on}  # read anew: nobody asked for these
        found |= {
            name: one
            for name, one in known.pins.items()
            if not (whole and (one.patched or (name in read and not (one.why or one.owner))))
        }
        used: dict[str, dict[str, None]] = {}
        for finding, case in patches_of(report, Project(survey.files.exists, survey.files.read, survey.parsed)):
            if case is not None:
                used.setdefault(finding.target, {}).update(dict.fromkeys(stands_on(case, release)))
        for finding in report.findings:
            if finding.shape in NO_PATCHES:
                continue
            if one := pins.pin(finding.target, release, True, known.pins.get(finding.target)):
                one = replace(one, stands_on=tuple(used.get(finding.target, ())))
                found[finding.target] = replace(one, **said) if not names else one
            elif finding.target in known.pins:  # what people wrote of it stays, and `check` says that it is gone
                found[finding.target] = known.pins[finding.target]
            else:
                lacking.append(finding.target)
                note(f"{finding.target} is not pinned: megatron-core {release.label} does not define it.")
        if lacking and not any(one.patched for one in found.values()):
            raise UsageError(f"None of the patched names is in megatron-core {release.label}; nothing was pinned.")
    for name in names:
        one = pins.pin(name, release, name in found and found[name].patched, found.get(name))
        if one is None:
            raise UsageError(f"megatron-core {release.label} has no {name}; nothing was pinned.")
        found[name] = replace(one, **said)
    for name in sorted({name for one in found.values() for name in one.leans_on} - set(found)):
        if leaned_on := pins.pin(name, release, False):
            found[name] = leaned_on
        else:
            note(f"depends_on names {name}, which megatron-core {release.label} does not define.")
    for name in sorted(set(known.pins) - set(found)):
        note(f"Dropped {name}, which is no longer patched{f': {known.pins[name].why}' if known.pins[name].why else ''}")
    if not found and not known.pins:
        note(
            "There is nothing to pin: no patch of Megatron Core was found, and no name was given. Nothing was written."
        )
        return EXIT_CLEAN
    before = file.read_text(encoding="utf-8") if pinned.lock_file(top) else ""
    replace_file(file, pins.Lock(found).text(before))
    changed = [name for name, one in found.items() if name in known.pins and known.pins[name].digest != one.digest]
    leaned = {name for one in found.values() if one.patched for name in one.stands_on}
    stand = f", {len(leaned)} of which the patches stand on" if leaned else ""
    with reporting(f"{pins.LOCK} was written, but "):
        print(
            f"{pins.LOCK} pins {count(len(found), 'name')}{stand} for megatron-core {release.label}; "
            f"{len(changed)} changed."
        )
    return EXIT_CLEAN


def release_in_use(top: Path, options: ScanOptions, lock: Lock) -> Model:
    """The release in use: the one given, else the newest that the repository runs, else that of the lock."""
    from mcore_unpatch.errors import UsageError
    from mcore_unpatch.library.sources import model_of
    from mcore_unpatch.megatron import known
    from mcore_unpatch.megatron.roots import LIBRARY
    from mcore_unpatch.megatron.versions import parse_version
    from mcore_unpatch.stacks.stacks import Stacks

    if options.source is not None:
        return model_of(LIBRARY, options.source.label, options.source.files)
    asked = Stacks(top, options.megatron, options.named_by, options.stacks).asked("")
    if asked is not None:
        return known.newest(asked.versions[-1])
    if lock.releases:
        return known.newest(parse_version(next(reversed(lock.releases))))
    raise UsageError("No file in this repository pins megatron-core; pass the release in use with --target-mcore.")
