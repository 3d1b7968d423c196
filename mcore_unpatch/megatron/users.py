"""Who uses a name of a release, in words."""

from __future__ import annotations

from mcore_unpatch.library.model import CALLED, EXACT, Model, Usage


def built(name: str, release: Model) -> Usage | None:
    """The use that builds a class by its name."""
    return next((one for one in release.uses(name) if one.how in (CALLED, EXACT)), None)


def module_of(place: str, release: Model) -> str:
    """The module that a place is in."""
    while place and not _is_module(place, release):
        place = place.rpartition(".")[0]
    return place


def who(use: Usage, verb: str, release: Model) -> str:
    """Who does something: the class or the module, of which one function is known, and how many more do it."""
    named = told_apart(use.place if _is_module(use.place, release) else use.place.rpartition(".")[0], release)
    if use.users < 2:
        return f"`{named}` {verb}"
    more = f"{use.users - 1} more classes or modules" if use.users > 2 else "another class or module"
    return f"`{named}` and {more} {verb.removesuffix('s')}"


def told_apart(name: str, release: Model) -> str:
    """The last part of a name; of a module the last two where others end in it: `mimo.optimizer`."""
    *_, above, short = name.split(".")
    alike = [one for one in release.ending(short) if _is_module(one, release)] if _is_module(name, release) else []
    return f"{above}.{short}" if len(alike) > 1 or short == "torch" else short


def _is_module(place: str, release: Model) -> bool:
    fact = release.facts.get(place)
    return fact is not None and fact.kind == "module"
