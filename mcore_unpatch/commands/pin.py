"""`unpatch pin`: record what the patches that stay were written for."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcore_unpatch.commands import options as opt
from mcore_unpatch.commands.guard import EXIT_CLEAN, guarded, note, reporting

if TYPE_CHECKING:
    from mcore_unpatch.pins import Lock
    from mcore_unpatch.upgrade.releases import Release

What = Annotated[
    list[str] | None,
    typer.Argument(
        help="The repository, or files and folders of it; or names such as megatron.core.utils.get_model_config, to "
        "pin what is not patched. [default: .]",
        show_default=False,
    ),
]
Why = Annotated[str | None, typer.Option(help="Why these stay.", show_default=False)]
Until = Annotated[
    str | None,
    typer.Option(help="Until when: a release such as 0.20, a pull request, an issue.", show_default=False),
]
Owner = Annotated[str | None, typer.Option(help="Whom to ask.", show_default=False)]
Mcore = Annotated[
    Path | None,
    typer.Option("--mcore", help="Read the release in use from a checkout, a wheel or a folder.", show_default=False),
]


@guarded
def pin(
    what: What = None,
    why: Why = None,
    until: Until = None,
    owner: Owner = None,
    mcore: Mcore = None,
    exclude: opt.Exclude = None,
    target_mcore: opt.TargetMcore = None,
    jobs: opt.Jobs = None,
) -> int:
    """Record in `unpatch.lock` what each patch replaces, as it is on the release in use, and why it stays.

    Run it again after an upgrade, once you have looked at what changed: what was said of a pin is kept.
    Exit code: 0 done, 2 a name that the release does not have, or a file that could not be analysed.
    """
    from dataclasses import replace

    from mcore_unpatch import pinned, pins
    from mcore_unpatch.atomic import replace_file
    from mcore_unpatch.commands.output import Progress, write_asides
    from mcore_unpatch.discover import project_root
    from mcore_unpatch.errors import UsageError
    from mcore_unpatch.report.layout import count
    from mcore_unpatch.scan import scan

    names = [one for one in what or [] if one.startswith("megatron.core.")]
    paths = [Path(one) for one in what or [] if not one.startswith("megatron.core.")]
    _, options = opt.combine(paths, None, None, exclude, target_mcore, jobs)
    start = (paths or [Path()])[0].resolve()
    top = project_root(start if start.is_dir() else start.parent)
    file = top / pins.LOCK
    known = pins.load(file) if pinned.lock_file(top) else pins.Lock()
    said: dict[str, Any] = {
        key: value for key, value in (("why", why), ("until", until), ("owner", owner)) if value is not None
    }
    with ExitStack() as keep:
        release = release_in_use(top, target_mcore, mcore, known, keep)
        found: dict[str, pins.Pin] = {}
        if names and not paths:  # patches stay as they are pinned
            found |= known.pins
        else:
            with Progress() as progress:
                report = scan(paths, replace(options, base=None, baseline=None, lock=None), progress)
            write_asides(report)
            if report.errors:
                raise UsageError("Nothing was pinned: some files could not be analysed.")
            whole = start == top
            found |= {name: one for name, one in known.pins.items() if not (whole and one.patched)}
            for finding in report.findings:
                if one := pins.pin(finding.target, release, True, known.pins.get(finding.target)):
                    found[finding.target] = replace(one, **said) if not names else one
                else:
                    note(f"{finding.target} is not pinned: megatron-core {release.label} does not define it.")
        for name in names:
            one = pins.pin(name, release, name in found and found[name].patched, found.get(name))
            if one is None:
                raise UsageError(f"megatron-core {release.label} has no {name}: nothing was pinned.")
            found[name] = replace(one, **said)
    replace_file(file, pins.Lock(found).text())
    changed = [name for name, one in found.items() if name in known.pins and known.pins[name].digest != one.digest]
    with reporting(f"{pins.LOCK} was written, but "):
        print(
            f"{pins.LOCK} pins {count(len(found), 'name')} for megatron-core {release.label}; {len(changed)} changed."
        )
    return EXIT_CLEAN


def release_in_use(top: Path, target: str | None, source: Path | None, lock: Lock, keep: ExitStack) -> Release:
    """The release that counts: the one that is named, the one that the repository asks for, or that of the lock."""
    from mcore_unpatch.errors import UsageError
    from mcore_unpatch.megatron.versions import show
    from mcore_unpatch.requirements import Pins
    from mcore_unpatch.upgrade.releases import known_release, release_at

    if source is not None:
        return release_at(source, keep)
    asked = Pins(top).asked("")
    name = target or (show(asked.versions[-1]) if asked else None) or next(reversed(lock.releases), None)
    if not name:
        raise UsageError("No file of this repository pins megatron-core: name the release in use with --target-mcore.")
    return known_release(name)
