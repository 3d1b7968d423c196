"""`unpatch.lock`: what the patches that stay were written for, and what else of Megatron Core a team leans on.

At run time, in the first second of a job:

    from mcore_unpatch import pins

    pins.verify()  # raises if the installed Megatron is not what the patches were written for

    @pins.guard("GPTModel._preprocess")  # refuses to run if that changed
    def install() -> None: ...

Only the modules that are pinned are read, as text; neither torch nor Megatron is imported.
"""

from __future__ import annotations

import json
import sys
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ContextDecorator
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from packaging.version import InvalidVersion, Version

from mcore_unpatch.errors import UsageError
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import RELEASES, parse_version
from mcore_unpatch.records import field, record
from mcore_unpatch.repository import reading
from mcore_unpatch.stacks.sources import installed_model

if TYPE_CHECKING:
    from mcore_unpatch.library.model import Known, Model

LOCK = "unpatch.lock"
_HEAD = """\
# What the patches that stay were written for, and what else of Megatron Core this repository leans on.
# `unpatch check` fails when one of these changes; `unpatch pin` writes this file anew and keeps why and until, and the
# comments of each pin.
"""
ABSENT = "-"  # in place of a digest: the release has no such name


class PinError(RuntimeError):
    """The installed Megatron is not what the patches were written for."""


@record
class Pin:
    """One name of Megatron Core, as it was on each release that it was pinned for, the newest first.

    where: the patches it speaks for, file and function of each; none where the repository only leans on the name.
    until: the release at which the patch must go.
    """

    name: str
    digest: dict[str, str] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    why: str = ""
    until: str = ""

    @property
    def patched(self) -> bool:
        """Whether this repository replaces it."""
        return bool(self.where)

    @property
    def is_added(self) -> bool:
        """Whether no release had it: the day it comes is the day to look."""
        return set(self.digest.values()) == {ABSENT}

    @property
    def short(self) -> str:
        """The name as people say it: class and method, or module and function."""
        return ".".join(self.name.split(".")[-2:])

    def speaks_for_more(self, older: Pin) -> bool:
        """Whether it has a place that an older pin of the name does not have."""
        return bool(Counter(self.where) - Counter(older.where))

    def is_past(self, release: Model) -> bool:
        """Whether the release this patch may live until has come."""
        try:
            return bool(self.until) and parse_version(release.label) >= parse_version(self.until)
        except ValueError:
            return False  # a pull request, an issue: nothing that a release number could answer


@record
class Lock:
    """The content of a lock file."""

    pins: dict[str, Pin] = field(default_factory=dict)

    @property
    def releases(self) -> list[str]:
        """The releases that the pins were made for, oldest first."""
        return sorted({release for pin in self.pins.values() for release in pin.digest}, key=Version)

    def text(self, before: str = "") -> str:
        """As it stands in the file: sorted, one table per pin, with the comments that people wrote into it before."""
        comments = _comments(before)
        parts = [_HEAD, "version = 1\n"]
        for name, pin in sorted(self.pins.items()):
            values = {key: getattr(pin, key) for key in ("name", "where", "why", "until")}
            lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value]
            digests = ", ".join(f'"{release}" = "{digest}"' for release, digest in pin.digest.items())
            lines.insert(1, f"digest = {{ {digests} }}")
            parts.append("\n" + "\n".join(["[[pin]]", *comments.get(name, []), *lines]) + "\n")
        return "".join(parts)

    def named(self, target: str) -> Pin:
        """The pin of a name, written whole or by its end; raises `PinError` where there is none."""
        matching = [pin for name, pin in self.pins.items() if name == target or name.endswith(f".{target}")]
        if len(matching) != 1:
            way = f"{len(matching)} pins end so; write the whole name" if matching else "write it with `unpatch pin`"
            raise PinError(f"{LOCK} has no pin for {target}: {way}.")
        return matching[0]


def _comments(text: str) -> dict[str, list[str]]:
    """The comment lines in the table of each pin, by the pin's name."""
    comments = {}
    for table in text.split("[[pin]]")[1:]:
        lines = [line.strip() for line in table.splitlines()]
        name = next((line.partition('"')[2].rstrip('"') for line in lines if line.startswith('name = "')), "")
        comments[name] = [line for line in lines if line.startswith("#")]
    return comments


def load(file: Path) -> Lock:
    """Read a lock; raises `UsageError` with what is wrong with it."""
    try:
        return parse(reading.read(file), file)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None


def parse(text: bytes, file: Path) -> Lock:
    """The same of the bytes of one."""
    try:
        data = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, a number of thousands of digits
        raise UsageError(f"{file} is not valid TOML: {error}") from None
    entries = data.get("pin", [])
    if data.get("version") != 1 or not isinstance(entries, list):
        raise UsageError(f"{file} is not a lock of version 1; delete it and write a new one with `unpatch pin`.")
    pins = [_pin_of(entry, file) for entry in entries]
    return Lock({pin.name: pin for pin in pins})


def _pin_of(entry: Any, file: Path) -> Pin:
    kinds = {"name": str, "digest": dict, "where": list, "why": str, "until": str}
    fits = isinstance(entry, dict) and {"name", "digest"} <= entry.keys() and bool(entry["digest"])
    if not fits or any(not isinstance(value, kinds.get(key, ())) for key, value in entry.items()):
        raise UsageError(f"{file}: invalid [[pin]] {entry}; the keys are {', '.join(kinds)}.")
    pin = Pin(**{**entry, "where": tuple(entry.get("where", ()))})
    if not all(isinstance(text, str) for text in (*pin.where, *pin.digest.values())):
        raise UsageError(f"{file}: `where` of {pin.name} must be a list of texts, `digest` one text for each release.")
    try:
        list(map(Version, pin.digest))
    except InvalidVersion as error:
        raise UsageError(f"{file}: {pin.name} has no valid release ({error}); run `unpatch pin`.") from None
    return pin


def pin(name: str, releases: Sequence[Model], where: Sequence[str] = (), before: Pin | None = None) -> Pin | None:
    """The pin of a name on some releases, the newest first, keeping what people wrote; None if none has the name.

    What a patch adds to a class or a module of Megatron's is pinned as absent.
    """
    digest = {release.label: _digest(_found(name, release)) for release in releases}
    made = Pin(name, digest, tuple(where), *((before.why, before.until) if before else ()))
    if made.is_added:
        may_be_added = made.patched and not name.endswith(".*") and (before is None or before.is_added)
        owners = (release.find(name.rpartition(".")[0]) for release in releases if may_be_added)
        if not any(owner and owner.fact.kind in ("class", "module") for owner in owners):
            return None
    return made


def _found(name: str, release: Model) -> Known | None:
    """What a release has under a name, or elsewhere, if another release moved it."""
    if found := release.find(name):
        return found
    if (other := known.name_on(release, name)) == name and (last := known.last(name)):
        there = known.model(last)
        if (fact := there.find(name)) is not None:
            other = release.moved(fact.name, fact.fact, there) or name
    is_same = other.split(".")[-2:] == name.split(".")[-2:]  # not one that has another name and much the same body
    return release.find(other) if is_same else None


def _digest(found: Known | None) -> str:
    """A name as it is: what it is, its code, its parameters or bases."""
    if found is None:
        return ABSENT
    fact = found.fact
    return blake2b(f"{fact.kind} {fact.digest.hex()} {fact.detail}".encode(), digest_size=4).hexdigest()


def held_to(pinned: Pin, label: str) -> str:
    """The release that a pin was made for and is compared with: this one, else the nearest before it."""
    labels = sorted(pinned.digest, key=Version)
    try:
        return next((release for release in reversed(labels) if Version(release) <= Version(label)), labels[0])
    except InvalidVersion:  # a commit: the newest release comes nearest
        return labels[-1]


def difference(pinned: Pin, release: Model) -> str | None:
    """How a pinned name differs on a release from the one that it was pinned for; None if it is unchanged."""
    held, now = held_to(pinned, release.label), _found(pinned.name, release)
    if _digest(now) == pinned.digest[held]:
        return None
    if now is None:
        from mcore_unpatch.judge.instead import advice, instead

        said = advice(pinned.name, instead(pinned.name, release))
        return f"was removed{f'; {said}' if said else ''}"
    if pinned.digest[held] == ABSENT:
        return "is new in Megatron: the patch now replaces it"
    was = _found(pinned.name, known.model(held)) if held in RELEASES else None
    if was is None or _digest(was) != pinned.digest[held]:
        return "changed"  # from what a source had that is not here
    if was.fact.kind != now.fact.kind:
        return f"changed from a {was.fact.kind} to a {now.fact.kind}"
    if was.fact.kind == "function" and was.fact.detail != now.fact.detail:
        return f"changed its signature from `{was.fact.detail}` to `{now.fact.detail}`"
    return "changed its body"


def defined(pinned: Pin, release: Model) -> str:
    """The name under which a release defines what is pinned."""
    found = _found(pinned.name, release)
    return found.name if found else ""


def differences(pins: Iterable[Pin], release: Model) -> list[str]:
    """One sentence for each pin that no longer holds."""
    compared = ((pin, difference(pin, release)) for pin in pins)
    return [f"`{pin.name}` {how}{f' ({pin.why})' if pin.why else ''}" for pin, how in compared if how]


def verify(lock: Path | str | None = None, *, on_difference: Literal["raise", "warn"] = "raise") -> None:
    """Compare the installed Megatron with the lock, by default the nearest `unpatch.lock` above the caller's file."""
    file = Path(lock) if lock is not None else _lock_above(sys._getframe(1).f_code.co_filename)
    lock_of, release = load(file), installed_model()
    if release is None:
        raise UsageError("megatron-core is not installed, so there is nothing to verify; install it first.")
    said = differences(lock_of.pins.values(), release)
    if not said:
        return
    written_for = f"{file} was written for ({', '.join(lock_of.releases)})"
    message = "\n".join([f"megatron-core {release.label} is not what {written_for}:", *said])
    if on_difference == "raise":
        raise PinError(message)
    warnings.warn(message, stacklevel=2)


class guard(ContextDecorator):  # noqa: N801 - it reads as a function
    """Let a patch be installed only on what it was written for: else `PinError` is raised.

    As a decorator of the function that installs it, or as a context manager: `with pins.guard(target): ...`.
    What somebody else has patched already is a change too.
    """

    def __init__(self, target: str, lock: Path | str | None = None) -> None:
        self.caller = sys._getframe(1).f_code.co_filename
        self.target, self.lock = target, Path(lock) if lock is not None else None

    def __exit__(self, *error: object) -> None:
        pass

    def __enter__(self) -> None:
        from mcore_unpatch.audit.names import deviations, loaded_modules

        pin = load(self.lock or _lock_above(self.caller)).named(self.target)
        said, release = ["megatron-core is not installed"], installed_model()
        if release is not None:
            said = differences([pin], release)
            modules = [module for home, module in loaded_modules().items() if pin.name.startswith(f"{home}.")]
            origins = (deviation.by for deviation in deviations(modules) if deviation.name == pin.name)
            said += [f"`{pin.name}` is already replaced by {by}" for by in origins if by.file != self.caller]
        if said:
            why = f" ({pin.why})" if pin.why else ""
            message = f"The patch of `{pin.name}`{why} was not written for this Megatron: {'; '.join(said)}."
            raise PinError(f"{message} Adapt it and run `unpatch pin`.")


def _lock_above(caller: str) -> Path:
    for folder in Path(caller).resolve().parents:
        if (folder / LOCK).is_file():
            return folder / LOCK
    raise UsageError(f"No {LOCK} found above {caller}; write one with `unpatch pin`, or pass its path.")
