"""Parameter lists of Megatron's functions, release by release, where they changed (`signatures.json`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from mcore_unpatch.megatron.api import ancestry
from mcore_unpatch.megatron.roots import shorten, within
from mcore_unpatch.megatron.versions import Version, parse_version


@dataclass(frozen=True, slots=True)
class Signature:
    """One parameter list; `since` says which minor release brought each name in."""

    parameters: tuple[str, ...]
    required: frozenset[str]
    takes_any_keyword: bool
    since: dict[str, Version]


@cache
def _table() -> dict[str, dict[str, str]]:
    return json.loads(files("mcore_unpatch.megatron").joinpath("signatures.json").read_bytes())  # type: ignore[no-any-return]


def _history(owner: str, name: str) -> dict[str, str] | None:
    for holder in ancestry(owner):
        if within(holder):
            found = _table().get(f"{shorten(holder)}.{name}")
            if found is not None:
                return found
    return None


@cache
def signature(owner: str, name: str, version: Version) -> Signature | None:
    """How `owner.name` is called in a release; None where it never changed or is not known there."""
    history = _history(owner, name)
    if history is None:
        return None
    current: list[str] | None = None
    since: dict[str, Version] = {}
    for release, line in history.items():
        minor = parse_version(release)
        if minor > version:
            break
        current = [word for word in line.split() if word != "*"]
        for word in current:
            since.setdefault(word.strip("*="), minor)
    if current is None:
        return None
    names = tuple(word.rstrip("=") for word in current if not word.startswith("*"))
    return Signature(
        names[1:] if names[:1] == ("self",) else names,
        frozenset(word for word in current if not word.endswith("=") and not word.startswith("*") and word != "self"),
        any(word.startswith("**") for word in current),
        since,
    )
