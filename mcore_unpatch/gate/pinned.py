"""The gate on `unpatch.lock`: pinned patches are accepted while what they replace is unchanged."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mcore_unpatch import pins
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import NO_PATCHES, Finding
from mcore_unpatch.library.model import Model
from mcore_unpatch.library.sources import model_of
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import LIBRARY, RELEASES, parse_version
from mcore_unpatch.pins import Lock, Pin
from mcore_unpatch.repository.paths import shown
from mcore_unpatch.stacks.at_hand import Sources, diff, here
from mcore_unpatch.stacks.sources import MegatronSource
from mcore_unpatch.stacks.stacks import Stacks

CHANGED, PAST, UNPINNED, UNUSED = "MCU801", "MCU802", "MCU803", "MCU804"


def settle(
    findings: list[Finding],
    lock: Lock,
    file: str,
    text: str,
    releases: Sequence[Model],
    *,
    whole: bool,
    required: bool,
    source: MegatronSource | None = None,
) -> tuple[list[Finding], list[str]]:
    """Findings without the pinned ones, and one for each pin that does not hold on one of the releases; and notes.

    `whole`: the whole repository was scanned, so that a pin without a patch can be told. `required`: a patch without
    a pin is a finding of its own, whatever a baseline says. `source`: a Megatron at hand.
    """
    patches = [finding for finding in findings if finding.shape not in NO_PATCHES]
    in_order = sorted(patches, key=lambda one: (one.in_test, one.sort_key), reverse=True)
    by_name = {finding.target: finding for finding in in_order}  # the first of them, before those in tests
    left, gone = _unaccepted(findings, lock)
    if required:
        for finding in [finding for finding in left if finding.can_be_pinned]:
            said = "is patched but not pinned; run `unpatch pin --why REASON`"
            short = ".".join(finding.target.split(".")[-2:])
            left.append(replace(finding, rule=UNPINNED, message=f"`{short}` {said}", replacement=None))
    lines = {line.strip(): number for number, line in reversed(list(enumerate(text.splitlines(), 1)))}
    at_hand = here(source)
    for pin in lock.pins.values():
        entry = f'name = "{pin.name}"'
        line = lines.get(entry, 1)
        in_lock = Finding("", file, line, 1, line, pin.name, "pin", "", source=entry)
        patch = by_name.get(pin.name)
        for rule, said in problems(pin, releases):
            place = in_lock if patch is None else _at(patch)
            changed = upstream(pin, releases, at_hand) if rule == CHANGED else ""
            left.append(replace(place, rule=rule, message=_said(pin, said), upstream=changed))
        if whole and pin.patched and patch is None:
            said = "is pinned but no longer patched; run `unpatch pin` to drop the pin"
            left.append(replace(in_lock, rule=UNUSED, message=_said(pin, said)))
    idle = [(lock.pins[name].short, at) for name, at in gone if whole and name in by_name]
    return left, [f"{file} pins {name} in {at}, where nothing patches it; run `unpatch pin`." for name, at in idle]


def _at(patch: Finding) -> Finding:
    """What a pin has to say, at the line of the patch that it is for."""
    place = (patch.path, patch.line, patch.column, patch.end_line)
    return Finding("", *place, patch.target, "pin", "", in_test=patch.in_test, scope=patch.scope, source=patch.source)


def _said(pin: Pin, said: str) -> str:
    return f"`{pin.short}` {said}{f' ({pin.why})' if pin.why else ''}"


def upstream(pin: Pin, releases: Sequence[Model], at_hand: Sources) -> str:
    """What changed in Megatron's code since the pin, as a diff; nothing where a source of it is not at hand."""
    for release in releases:
        made_for = pins.held_to(pin, release.label)
        if made_for != release.label and made_for in RELEASES and pins.difference(pin, release):
            before = at_hand.text(made_for, pins.defined(pin, known.model(made_for)))
            after = at_hand.text(release.label, pins.defined(pin, release))
            if before and after:
                return diff(before, after, f"megatron-core {made_for}", f"megatron-core {release.label}")
    return ""


def _unaccepted(findings: list[Finding], lock: Lock) -> tuple[list[Finding], Counter[tuple[str, str]]]:
    """The findings that a lock does not speak for, and how many more it would, by name and place."""
    room = Counter((name, at) for name, pin in lock.pins.items() for at in pin.where)
    left = []
    for finding in findings:
        pin = lock.pins.get(finding.target) if finding.can_be_pinned else None
        if pin is None or not pin.patched:
            left.append(finding)
        elif room[finding.target, finding.where]:
            room[finding.target, finding.where] -= 1
        else:
            more = f" and {len(pin.where) - 1} more" if len(pin.where) > 1 else ""
            told = f"{pins.LOCK} pins it in {pin.where[0]}{more}, not here: `unpatch pin` accepts this patch too"
            evidence = f"{finding.evidence} {told}.".lstrip()
            left.append(replace(finding, assessment=replace(finding.assessment, evidence=evidence)))
    return left, +room


def problems(pin: Pin, releases: Sequence[Model]) -> Iterator[tuple[str, str]]:
    """What is wrong with a pin on some releases: the rule, and what it says of the name."""
    changed: dict[tuple[str, str], list[str]] = {}
    for release in reversed(releases):
        if how := pins.difference(pin, release):
            made_for = pins.held_to(pin, release.label)
            told = f"; its pin is for {made_for}" if made_for != release.label else ""
            changed.setdefault((how, told), []).append(release.label)
    for (how, told), labels in changed.items():
        yield CHANGED, f"{how} on megatron-core {', '.join(labels)}{told}"
    if pin.is_past(releases[0]):
        yield PAST, f"has a pin until {pin.until}, and this is {releases[0].label}; remove it"


def notes(lock: Lock, releases: Sequence[Model]) -> Iterator[str]:
    """What to know of a lock that holds: that other releases are run."""
    other = [release.label for release in releases if release.label not in lock.releases]
    if other and lock.pins:
        said = f"{pins.LOCK} was written for megatron-core {', '.join(lock.releases)}, not for {', '.join(other)}"
        yield f"{said}: each name is compared with the nearest release before that."


def releases_in_use(stacks: Stacks, source: MegatronSource | None, lock: Lock) -> tuple[list[Model], str]:
    """The releases to pin for, the newest first: the source given, those that files name, or that of the lock.

    A release branch counts as its newest release. And a sentence where a commit between two releases is all that the
    files name, which one of them has to stand for.
    """
    if source is not None:
        return [model_of(LIBRARY, source.label, source.files)], ""
    asked = stacks.below("")
    if asked is None:
        if lock.releases:
            return [known.newest(parse_version(lock.releases[-1]))], ""
        raise UsageError("No file in this repository pins megatron-core; pass the release in use with --target-mcore.")
    named = {version for stack in asked.stacks if stack.revision.is_one_release for version in stack.versions}
    if named or stacks.given:
        versions = sorted(named or asked.versions, reverse=True)
        return list(dict.fromkeys(known.newest(version) for version in versions)), ""
    release = known.newest(asked.versions[-1])
    told = f"No file names a release of megatron-core: {release.label} stands for {asked.stacks[0]}"
    return [release], f"{told}. Pass its source with --target-mcore to pin what it is."


def lock_file(top: Path) -> Path | None:
    """The lock of a repository, if it has one."""
    file = top / pins.LOCK
    if not os.path.lexists(file):
        return None
    if file.is_symlink() or not file.is_file():  # taken for no lock at all, it would switch the gate off
        raise UsageError(f"{shown(file)} is not a regular file: write it anew with `unpatch pin`")
    return file
