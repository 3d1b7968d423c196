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
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

from packaging.version import InvalidVersion, Version

from mcore_unpatch.errors import UsageError
from mcore_unpatch.megatron.versions import parse_version
from mcore_unpatch.records import field, fields, record, replace
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
_LISTS = dict.fromkeys(("also", "where"), list)
_TYPES: dict[str, type] = {"patched": bool, **_LISTS}  # all others are text
ABSENT, ABSENT_KIND = "-", "absent"
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class PinError(RuntimeError):
    """The installed Megatron is not what the patches were written for."""


@record
class Pin:
    """One name of Megatron Core, as it was. `patched`: this repository replaces it; else it leans on it.

    until: the release at which the patch must go. also: the other releases that it was made for, and how the name is
    there, where that differs: a digest, `-` for no such name. kind `absent`: what the patch adds to Megatron.
    where: the patches it speaks for, file and function of each. before: the name by which an older release has what a
    later one defines elsewhere.
    """

    name: str
    before: str = ""
    release: str = ""
    kind: str = "function"
    digest: str = ""
    signature: str = ""
    patched: bool = False
    why: str = ""
    until: str = ""
    also: tuple[str, ...] = ()
    where: tuple[str, ...] = ()

    @property
    def releases(self) -> dict[str, str]:
        """The releases that it was made for, and what the name is on each, as `_form` says it."""
        own = _form(self, self)
        others = (entry.partition(" ") for entry in self.also)
        return {self.release: own} | {release: form or own for release, _, form in others}

    @property
    def short(self) -> str:
        """The name as people say it: class and method, or module and function."""
        return ".".join(self.name.split(".")[-2:])

    def speaks_for_more(self, older: Pin) -> bool:
        """Whether it has a place that an older pin of the name says it does not have."""
        return bool(older.where and Counter(self.where) - Counter(older.where))

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
        return sorted({release for pin in self.pins.values() for release in pin.releases}, key=Version)

    def text(self, before: str = "") -> str:
        """As it stands in the file: sorted, one table per pin, with the comments that people wrote into it before."""
        comments = _comments(before)
        parts = [_HEAD, "version = 1\n"]
        for _, pin in sorted(self.pins.items()):
            lines = [f"{one.name} = {json.dumps(value)}" for one in fields(pin) if (value := getattr(pin, one.name))]
            parts.append("\n" + "\n".join(["[[pin]]", *comments.get(pin.name, []), *lines]) + "\n")
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
    if data.get("version") != 1 or not isinstance(data.get("pin", []), list):
        raise UsageError(f"{file} is not a lock of version 1; write a new one with `unpatch pin`.")
    known = {field.name: _TYPES.get(field.name, str) for field in fields(Pin)}
    pins = {}
    for entry in data.get("pin", []):
        wrong = not isinstance(entry, dict) or "name" not in entry
        if wrong or any(not isinstance(value, known.get(key, ())) for key, value in entry.items()):
            raise UsageError(f"{file}: invalid [[pin]] {entry}; the keys are {', '.join(known)}.")
        lists = {key: tuple(entry.get(key, ())) for key, kind in _TYPES.items() if kind is list}
        pins[entry["name"]] = _checked(file, Pin(**{**entry, **lists}))
    return Lock(pins)


def _checked(file: Path, pin: Pin) -> Pin:
    if not all(isinstance(name, str) for name in (*pin.also, *pin.where)):
        raise UsageError(f"{file}: the lists of {pin.name} must be lists of names.")
    try:
        list(map(Version, pin.releases))
    except InvalidVersion as error:
        raise UsageError(f"{file}: {pin.name} has no valid release ({error}); run `unpatch pin`.") from None
    return pin


def pin(name: str, releases: Sequence[Model], patched: bool, known: Pin | None = None) -> Pin | None:
    """The pin of a name on some releases, the newest first, keeping what people wrote; None if none has the name.

    What a patch adds to a class or a module of Megatron's is pinned as absent: the day it comes is the day to look.
    """
    from mcore_unpatch.megatron.known import name_on

    others = ((name_on(release, name), release) for release in releases if not release.find(name))
    before = next((other for other, release in others if other != name and release.find(other)), "")
    known = replace(known or Pin(name), before=before)
    home = next((release for release in releases if _found(known, release)), None)
    if home is None:
        added = patched and not name.endswith(".*") and (not known.release or known.kind == ABSENT_KIND)
        holders = ((release, release.find(name.rpartition(".")[0])) for release in releases if added)
        home = next((release for release, owner in holders if owner and owner.fact.kind in ("class", "module")), None)
    if home is None:
        return None
    made = _as_on(home, known)
    forms = ((release.label, _form(_as_on(release, made), made)) for release in releases if release is not home)
    own = _form(made, made)
    also = tuple(label if form == own else f"{label} {form}" for label, form in forms)
    return replace(made, patched=patched, also=also)


def _found(pinned: Pin, release: Model) -> Known | None:
    return release.find(pinned.name) or (release.find(pinned.before) if pinned.before else None)


def _as_on(release: Model, pinned: Pin) -> Pin:
    """A pin as if it had been made on this release."""
    known = _found(pinned, release)
    if known is None:
        return replace(pinned, release=release.label, kind=ABSENT_KIND, digest="", signature="")
    seen = known.fact
    return replace(pinned, release=release.label, kind=seen.kind, digest=seen.digest.hex(), signature=seen.detail)


def _form(now: Pin, pinned: Pin) -> str:
    """What a name is on a release: its digest, or its kind where it has no body; and another signature."""
    if now.kind == ABSENT_KIND:
        return ABSENT
    return " ".join([now.digest or now.kind, *([now.signature] if now.signature != pinned.signature else [])])


def held_to(pinned: Pin, label: str) -> str:
    """The release that a pin was made for and is compared with: this one, else the nearest before it."""
    known = sorted(pinned.releases, key=Version)
    try:
        return next((release for release in reversed(known) if Version(release) <= Version(label)), known[0])
    except InvalidVersion:  # a commit: the newest release comes nearest
        return known[-1]


def difference(pinned: Pin, release: Model) -> str | None:
    """How a pinned name differs on a release from the one that it was pinned for; None if it is unchanged."""
    now, was = _as_on(release, pinned), pinned.releases[held_to(pinned, release.label)]
    if _form(now, pinned) == was:
        return None
    if now.kind == ABSENT_KIND:
        from mcore_unpatch.judge.instead import advice, instead

        said = advice(pinned.name, instead(pinned.name, release))
        return f"was removed{f'; {said}' if said else ''}"
    if was == ABSENT:
        return "is new in Megatron: the patch now replaces it"
    signature = was.partition(" ")[2] or pinned.signature
    if now.signature != signature and now.kind == pinned.kind == "function":
        return f"changed its signature from `{signature}` to `{now.signature}`"
    return "changed its body" if now.kind == pinned.kind else f"changed from a {pinned.kind} to a {now.kind}"


def differences(pins: Iterable[Pin], release: Model) -> list[str]:
    """One sentence for each pin that no longer holds."""
    compared = ((pin, difference(pin, release)) for pin in pins)
    return [f"`{pin.name}` {how}{f' ({pin.why})' if pin.why else ''}" for pin, how in compared if how]


def verify(lock: Path | str | None = None, *, on_difference: Literal["raise", "warn"] = "raise") -> None:
    """Compare the installed Megatron with the lock, by default the nearest `unpatch.lock` above the caller's file."""
    file = Path(lock) if lock is not None else _lock_above(sys._getframe(1).f_code.co_filename)
    known = load(file)
    release = installed_model()
    if release is None:
        raise UsageError("megatron-core is not installed, so there is nothing to verify; install it first.")
    said = differences(known.pins.values(), release)
    if not said:
        return
    written_for = f"{file} was written for ({', '.join(known.releases)})"
    message = "\n".join([f"megatron-core {release.label} is not what {written_for}:", *said])
    if on_difference == "raise":
        raise PinError(message)
    warnings.warn(message, stacklevel=2)


class guard:  # noqa: N801 - it reads as a function: a decorator, a context manager
    """Let a patch be installed only on what it was written for: else `PinError` is raised.

    As a decorator of the function that installs it, or as a context manager: `with pins.guard(target): ...`.
    What somebody else has patched already is a change too.
    """

    def __init__(self, target: str, lock: Path | str | None = None) -> None:
        self.caller = sys._getframe(1).f_code.co_filename
        self.target, self.lock = target, Path(lock) if lock is not None else None

    def __enter__(self) -> None:
        self._check()

    def __exit__(self, *error: object) -> None:
        pass

    def __call__(self, install: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        """The function that installs the patch, guarded."""

        @wraps(install)
        def guarded(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            self._check()
            return install(*args, **kwargs)

        return guarded

    def _check(self) -> None:
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
