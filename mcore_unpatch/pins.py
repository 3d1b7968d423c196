"""`unpatch.lock`: what the patches that stay were written for, and what else of Megatron Core a team leans on.

At run time, in the first second of a job:

    from mcore_unpatch import pins

    pins.verify()  # raises if the installed Megatron is not what the patches were written for

Only the modules that are pinned are read, as text; neither torch nor Megatron is imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mcore_unpatch import reading
from mcore_unpatch.errors import UsageError

if TYPE_CHECKING:
    from mcore_unpatch.upgrade.releases import Release

LOCK = "unpatch.lock"
_HEAD = """\
# What the patches that stay were written for, and what else of Megatron Core this repository leans on.
# `unpatch check` fails when one of these changes; `unpatch pin` writes this file anew and keeps why, until and owner.
"""


class PinError(RuntimeError):
    """The installed Megatron is not what the patches were written for."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One name of Megatron Core, as it was. `patched`: this repository replaces it; else it leans on it."""

    name: str
    release: str = ""
    kind: str = "function"
    digest: str = ""
    signature: str = ""
    patched: bool = False
    why: str = ""
    until: str = ""
    owner: str = ""

    def is_past(self, release: Release) -> bool:
        """Whether the release this patch may live until has come."""
        from mcore_unpatch.megatron.versions import parse_version

        try:
            return bool(self.until) and release.version >= parse_version(self.until)
        except ValueError:
            return False  # a pull request, an issue: nothing that a release number could answer


@dataclass(frozen=True, slots=True)
class Lock:
    """The content of a lock file."""

    pins: dict[str, Pin] = field(default_factory=dict)

    @property
    def releases(self) -> list[str]:
        """The releases that the pins were read from, oldest first."""
        from packaging.version import Version

        return sorted({pin.release for pin in self.pins.values()}, key=Version)

    def text(self) -> str:
        """As it stands in the file: sorted, one table per pin."""
        parts = [_HEAD, "version = 1\n"]
        for _, pin in sorted(self.pins.items()):
            lines = [f"{one.name} = {json.dumps(value)}" for one in fields(pin) if (value := getattr(pin, one.name))]
            parts.append("\n[[pin]]\n" + "\n".join(lines) + "\n")
        return "".join(parts)


def load(file: Path) -> Lock:
    """Read a lock; raises `UsageError` with what is wrong with it."""
    try:
        return parse(reading.read(file), file)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None


def parse(text: bytes, file: Path) -> Lock:
    """The same of the bytes of one."""
    import tomllib

    try:
        data = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file} is not valid TOML: {error}") from None
    if data.get("version") != 1 or not isinstance(data.get("pin", []), list):
        raise UsageError(f"{file} is not a lock of version 1; write a new one with `unpatch pin`.")
    known = {one.name: bool if one.name == "patched" else str for one in fields(Pin)}
    pins = {}
    for entry in data.get("pin", []):
        wrong = not isinstance(entry, dict) or "name" not in entry
        if wrong or any(not isinstance(value, known.get(key, ())) for key, value in entry.items()):
            raise UsageError(f"{file}: invalid [[pin]] {entry}; the keys are {', '.join(known)}.")
        pins[entry["name"]] = Pin(**entry)
    return Lock(pins)


def pin(name: str, release: Release, patched: bool, known: Pin | None = None) -> Pin | None:
    """The pin of a name on a release, keeping its reason and owner; None if the release has no such name."""
    found = release.find(name)
    if found is None:
        return None
    seen = found.definition
    return replace(
        known or Pin(name),
        release=release.label,
        kind=seen.kind,
        digest=seen.digest.hex(),
        signature=seen.signature,
        patched=patched,
    )


def difference(pinned: Pin, release: Release) -> str | None:
    """How a pinned name differs on a release; None if it is unchanged."""
    now = pin(pinned.name, release, pinned.patched, pinned)
    if now is not None and replace(now, release=pinned.release) == pinned:
        return None
    if now is None:
        from mcore_unpatch.megatron.definitions import Definition

        moved = release.moved(pinned.name, Definition(pinned.kind, pinned.signature))
        return f"was removed{f'; it is now `{moved}`' if moved else ''}"
    if now.signature != pinned.signature and now.kind == pinned.kind == "function":
        return f"changed its signature from `{pinned.signature}` to `{now.signature}`"
    return "changed its body" if now.kind == pinned.kind else f"changed from a {pinned.kind} to a {now.kind}"


def differences(pins: Iterable[Pin], release: Release) -> list[str]:
    """One sentence for each pin that no longer holds."""
    found = ((one, difference(one, release)) for one in pins)
    return [f"`{one.name}` {how}{f' ({one.why})' if one.why else ''}" for one, how in found if how]


def verify(lock: Path | str | None = None, *, on_difference: Literal["raise", "warn"] = "raise") -> None:
    """Compare the installed Megatron with the lock, by default the nearest `unpatch.lock` above the caller's file."""
    file = Path(lock) if lock is not None else _beside_the_caller()
    known = load(file)
    from mcore_unpatch.upgrade.releases import installed_release

    release = installed_release()
    if release is None:
        raise UsageError("megatron-core is not installed, so there is nothing to verify; install it first.")
    said = differences(known.pins.values(), release)
    if not said:
        return
    written_for = f"{file} was written for ({', '.join(known.releases)})"
    message = "\n".join([f"megatron-core {release.label} is not what {written_for}:", *said])
    if on_difference == "raise":
        raise PinError(message)
    import warnings

    warnings.warn(message, stacklevel=2)


def _beside_the_caller() -> Path:
    import inspect

    frame = inspect.stack()[2]
    for folder in Path(frame.filename).resolve().parents:
        if (folder / LOCK).is_file():
            return folder / LOCK
    raise UsageError(
        f"No {LOCK} found above {frame.filename}; write one with `unpatch pin`, or pass its path: verify(path)."
    )
