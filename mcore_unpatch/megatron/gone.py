"""Functions and classes that releases took away: `gone.json`, made with the history and read much faster."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from mcore_unpatch.megatron.versions import RELEASES, Version, parse_version


@cache
def last_releases() -> dict[str, str]:
    """Dotted name -> the last release that has it."""
    return json.loads(files("mcore_unpatch.megatron").joinpath("gone.json").read_bytes())  # type: ignore[no-any-return]


def from_history() -> dict[str, str]:
    """What `gone.json` holds: a method that a base class has now is not gone, nor what is imported in its old place."""
    from mcore_unpatch.megatron import history, lookup

    releases = history.releases()
    names, newest = history.every_name(), history.names_of(releases[-1])
    found = {}
    for name in sorted(names):
        versions = history.versions_of(name)
        (first_without, last), had = versions[-1], versions[-2][1] if len(versions) > 1 else None
        if last is None and had is not None and had.kind in {"function", "class"}:
            if lookup.find(newest, name) is None:
                found[name] = releases[releases.index(first_without) - 1]
    return found


def moved_to(name: str) -> str | None:
    """Where the newest release has what stood under a name that is gone: the same name in another module."""
    from mcore_unpatch.megatron import api, lookup

    owner, _, leaf = name.rpartition(".")
    symbol = api.lookup(owner)
    places: list[str] = []
    if owner in last_releases() and (moved := moved_to(owner)):
        places = [f"{moved}.{leaf}"]
    elif symbol is not None and symbol.kind == "module":
        places = [f"{module}.{leaf}" for module in api.definers(leaf)]
    return next((place for place in places if place != name and lookup.has(place, RELEASES[-1])), None)


@cache
def words() -> frozenset[str]:
    """The last part of each name."""
    return frozenset(name.rpartition(".")[2] for name in last_releases())


def is_gone(name: str, version: Version) -> bool:
    """Whether a minor release no longer has a name that an older one had."""
    owner, _, leaf = name.rpartition(".")
    if leaf.startswith("__") and owner not in last_releases():
        return False  # Python itself may call it
    last = last_releases().get(name)
    return last is not None and parse_version(last) < version
