"""`unpatch pin`: record what the patches that stay were written for."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from mcore_unpatch import pins
from mcore_unpatch.commands import options as opt
from mcore_unpatch.commands.guard import EXIT_CLEAN, guarded, note, reporting
from mcore_unpatch.commands.options import option
from mcore_unpatch.commands.output import Progress, write_asides
from mcore_unpatch.errors import UsageError
from mcore_unpatch.gate import pinned
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron.versions import within
from mcore_unpatch.pins import Lock, Pin
from mcore_unpatch.report.counts import subjects
from mcore_unpatch.report.lines import count, show, wrapped
from mcore_unpatch.repository.discover import top_of
from mcore_unpatch.repository.reading import replace_file
from mcore_unpatch.stacks.stacks import Stacks
from mcore_unpatch.survey.scan import report_of
from mcore_unpatch.survey.survey import ScanOptions, Survey

_WHAT = "The repository, or files and folders in it. A name such as megatron.core.utils.get_model_config pins code "
What = Annotated[list[str] | None, opt.argument(f"{_WHAT}that you use but do not patch. [default: .]")]
Why = Annotated[str | None, option("--why", "Why the patches stay.")]
_UNTIL = "How long they stay: a release such as 0.20, or a pull request."
Until = Annotated[str | None, option("--until", _UNTIL)]


@guarded
def pin(
    what: What = None,
    why: Why = None,
    until: Until = None,
    exclude: opt.Exclude = None,
    target_mcore: opt.TargetMcore = None,
    stack: opt.Stack = None,
    jobs: opt.Jobs = None,
) -> int:
    """Record in `unpatch.lock` what each remaining patch replaces.

    And why it stays. `unpatch check` then fails when Megatron changes it. After an upgrade, review what changed and run
    `unpatch pin` again; reasons, deadlines and comments are kept.
    Exit code: 0 if pinned, 2 if the release lacks a name or a file could not be analysed.
    """
    names = [text for text in what or [] if within(text)]
    paths = [Path(text) for text in what or [] if not within(text)]
    _, options = opt.combine(paths, exclude=exclude, target_mcore=target_mcore, jobs=jobs, stack=stack)
    top = top_of(paths)
    file = top / pins.LOCK
    known = pins.load(file) if pinned.lock_file(top) else pins.Lock()
    given = {"why": why, "until": until}
    said: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    # Without a path, patches stay as they are pinned.
    patches = _Patches(paths, options) if paths or not names else None
    if not names and not known.pins and patches is not None and not patches.found:
        note("There is nothing to pin: no patch that stays was found, and no name was given. Nothing was written.")
        return EXIT_CLEAN
    stacks = Stacks(top, options.megatron, options.named_by, options.stacks)
    releases, why_these = pinned.releases_in_use(stacks, options.source, known)
    chosen = patches.pinned(known, releases, {} if names else said) if patches else dict(known.pins)
    for name in names:
        made = pins.pin(name, releases, chosen[name].where if name in chosen else (), chosen.get(name))
        if made is None:
            raise UsageError(f"megatron-core {releases[0].label} has no {name}; nothing was pinned.")
        chosen[name] = replace(made, **said)
    for name in sorted(set(known.pins) - set(chosen)):
        note(f"Dropped {name}, which is no longer patched{f': {known.pins[name].why}' if known.pins[name].why else ''}")
    if why_these:
        note(why_these)
    before = file.read_text(encoding="utf-8") if pinned.lock_file(top) else ""
    lock = pins.Lock(chosen)
    replace_file(file, lock.text(before))
    with reporting(f"{pins.LOCK} was written, but "):
        _tell(lock, known, [release.label for release in releases], patches, stack or [], target_mcore)
    return EXIT_CLEAN


def _tell(
    lock: Lock, known: Lock, releases: list[str], patches: _Patches | None, stack: list[str], target: str | None
) -> None:
    """What was pinned, what cannot be, and the next command."""
    names = lock.pins
    patched = sum(name.patched for name in names.values())
    replaced = [finding for finding in patches.found if finding.target in names] if patches else []
    parts = [f"{count(patched, 'name')} that {count(len(replaced), 'patch replaces', 'patches replace')}"]
    parts += [f"{count(len(names) - patched, 'name')} that are not patched"] if patched < len(names) else []
    changed = sum(name in known.pins and known.pins[name].digest != pin.digest for name, pin in names.items())
    told = " and ".join(parts) if replaced else count(len(names), "name")
    show(wrapped(f"{pins.LOCK} pins {told}, for megatron-core {', '.join(releases)}; {changed} changed.", 0))
    if added := sum(name.is_added for name in names.values()):
        show(wrapped(f"Not in Megatron: {added} of these names. `check` fails when Megatron gets one.", 0))
    if not known.pins:
        show(wrapped(f"Commit {pins.LOCK}, and say in it why each patch stays.", 0))
    options = "".join(f" --stack {shlex.quote(name)}" for name in stack)
    options += f" --target-mcore {shlex.quote(target)}" if target else ""
    if patches and (rest := [finding for finding in patches.report.findings if finding not in replaced]):
        gone = "them until they are gone" if len(rest) > 1 else "it until it is gone"
        show(wrapped(f"Not pinned: {subjects(rest)}. A baseline accepts {gone}.", 0))
        options += "" if (Path(patches.report.top) / opt.DEFAULT_BASELINE).is_file() else " --write-baseline"
    show(wrapped(f"unpatch check{options}", 0, "Next: ", "bold"))


class _Patches:
    """The patches below some paths."""

    def __init__(self, paths: list[Path], options: ScanOptions) -> None:
        with Progress() as progress:
            self.survey = Survey(paths, replace(options, base=None, baseline=None, lock=None), progress)
            self.report = report_of(self.survey)
        write_asides(self.report)
        if self.report.errors:
            raise UsageError("Some files could not be analysed, so nothing was pinned; fix or --exclude them.")
        self.found = [finding for finding in self.report.findings if finding.can_be_pinned]

    def pinned(self, known: Lock, releases: list[Model], said: dict[str, Any]) -> dict[str, Pin]:
        """The pins of those that stay, and pins of what was not looked at; what can be deleted needs none."""
        survey, report = self.survey, self.report
        whole = survey.found.top in map(Path.resolve, survey.paths)
        kept = {name: pin for name, pin in known.pins.items() if not pin.patched}
        chosen = kept if whole else dict(known.pins)
        stay = {finding.target for finding in self.found if finding.verdict != "delete"} | set(known.pins)
        where: dict[str, list[str]] = {}
        for finding in survey.findings:  # whose paths begin at the top
            if finding.can_be_pinned:
                where.setdefault(finding.target, []).append(finding.where)
        looked_at = set(survey.found.python)
        lacking: dict[str, None] = {}
        for finding in self.found:
            name = finding.target
            if name not in stay:
                continue
            before = known.pins[name].where if name in known.pins and not whole else ()
            others = [at for at in before if at.partition("::")[0] not in looked_at]
            if made := pins.pin(name, releases, sorted([*others, *where[name]]), known.pins.get(name)):
                chosen[name] = replace(made, **said)
            elif name in known.pins:  # what people wrote of it stays, and `check` says that it is gone
                chosen[name] = known.pins[name]
            else:
                lacking[name] = None
        if needless := [f"{report.from_here(one.path)}:{one.line}" for one in self.found if one.target not in stay]:
            can = count(len(needless), "patch can be deleted and needs", "patches can be deleted and need")
            note(f"{can} no pin (`unpatch scan --verbose` says why): {', '.join(needless)}.")
        if lacking:
            short = ", ".join(".".join(name.split(".")[-2:]) for name in lacking)
            told = f"megatron-core {releases[0].label} does not hold {short}: not pinned"
            note(f"{told}. Where a checkout is run that does, pass it with --target-mcore PATH.")
            if not any(pin.patched for pin in chosen.values()):
                raise UsageError(
                    f"None of the patched names is in megatron-core {releases[0].label}; nothing was pinned."
                )
        return chosen
