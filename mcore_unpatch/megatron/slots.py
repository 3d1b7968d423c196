"""Where Megatron's own specs name a class, in words.

A slot is a field of a `...Submodules` dataclass, or `module` of a ModuleSpec: of a layer's, or of one in no field.
Where `releases` are given, of these alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from mcore_unpatch.library.model import CALLED, EXACT, NAMED, SLOT, Model
from mcore_unpatch.megatron import api, known
from mcore_unpatch.megatron.layout import COMPARED_IN_SPECS
from mcore_unpatch.megatron.versions import minor, parse_version

# A class that more of those derive from is too general for a ModuleSpec to be the answer.
_MOST_DERIVED = 3
_MOST_SHOWN = 2


Releases = tuple[Model, ...]


@cache
def table(releases: Releases = ()) -> dict[str, tuple[str, ...]]:
    """The slots of each class that specs name, by its short name, in the newest release that names it."""
    every = [row for release in releases or known.minors() for row in _of_release(release).items()]
    return dict(every)


@cache
def _of_release(release: Model) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name in _ever_named():
        places = {usage.place: usage.how for usage in release.uses(name) if usage.how in (SLOT, NAMED)}
        slots = tuple(place for place, how in places.items() if how == SLOT)
        if slots or (places and api.is_module_class(name)):
            found[name.rpartition(".")[2]] = slots or (".module",)
    return found


@cache
def _ever_named() -> list[str]:
    """The names that specs of some release have."""
    return known.atlas().used_as(SLOT + NAMED)


@cache
def named(name: str, releases: Releases = ()) -> tuple[str, ...]:
    """The classes that specs name, of a class (by its dotted name) and those that derive from it, itself first."""
    own, derived = name.rpartition(".")[2], _derived(name, releases)
    if own in table(releases):
        return (own, *derived)
    return tuple(derived) if len(_derived(name, ())) <= _MOST_DERIVED else ()


@cache
def _derived(name: str, releases: Releases) -> list[str]:
    """Of the classes that specs name those that derive from one, the most used first, then the plainest."""
    own, slots = name.rpartition(".")[2], table(releases)
    derived = [one for one in slots if one != own and any(name in api.ancestry(full) for full in api.classes(one))]
    return sorted(derived, key=lambda other: (-len(slots[other]), len(other)))


def naming(name: str, release: Model, method: str = "") -> str:
    """In words, where a subclass of a class can take its place, for a method of it; nothing where no spec names one."""
    if name.rpartition(".")[2] in table((release,)):
        return "a ModuleSpec names it"
    derived = [f"`{other}`" for other in _derived(name, (release,)) if _runs(name, method, other, release)]
    many = f"one of {_listed(derived, 'or', 'others')}, which ModuleSpecs name"
    return f"it is {many if len(derived) > 1 else f'a {derived[0]}, which a ModuleSpec names'}" if derived else ""


def _runs(base: str, method: str, heir: str, release: Model) -> bool:
    """Whether a class that derives from one runs a method of it: it has no other, or one that calls it."""
    if not method or method.startswith("__"):
        return True
    callers = {f"{base}.{method}", *(usage.place for usage in release.uses(f"{base}.{method}"))}
    lineages = [own for full in api.classes(heir) if base in (own := release.lineage(full))]
    owners = (next((one for one in own if f"{one}.{method}" in release.facts), base) for own in lineages)
    return any(f"{owner}.{method}" in callers for owner in owners)


@cache
def holder(name: str, attribute: str) -> str | None:
    """The `...Submodules` in which the spec of a class (by its dotted name) names what `attribute` holds."""
    for ancestor in api.ancestry(name):
        for dataclass in _submodules(ancestor):
            if api.attribute_class(dataclass, attribute) is not None:
                return dataclass.rpartition(".")[2]
    return None


def built_by_name(name: str, releases: Releases) -> str:
    """In words, who builds a class by its name, whatever specs say; nothing where nobody does."""
    told = (f"`{builder}`" for release in releases for builder in _builders(known.name_on(release, name), release))
    who = list(dict.fromkeys(told))
    return f"{_listed(who, 'and')} {'build' if len(who) > 1 else 'builds'} it by name" if who else ""


def unreached(name: str, releases: Releases) -> str:
    """In words, where a spec does not reach a class, or Megatron takes no other in its place."""
    does = built_by_name(name, releases)
    beside = f" {does}, out of reach of a spec: keep the patch for that." if does else ""
    since, until, compared = COMPARED_IN_SPECS.get(name.rpartition(".")[2], ((), (), ""))
    there = any(since <= minor(parse_version(release.label)) <= until for release in releases)
    return f"{beside}{compared if there else ''}"


def _builders(name: str, release: Model) -> Iterator[str]:
    """Who builds a class by name, whatever specs say: classes, and functions that no spec names."""
    uses = (*release.uses(name), *release.uses(f"{name}.__init__"))
    held = (holder for holder in map(".".join, api.holders(name)) if holder in release.facts)
    filled = {slot.partition(".")[0] for slot in table((release,)).get(name.rpartition(".")[2], ())}
    for place in (*(usage.place for usage in uses if usage.how in (CALLED, EXACT)), *held):
        owner, _, leaf = place.rpartition(".")
        fact, short = release.facts.get(owner), owner.rpartition(".")[2]
        if fact is None or fact.kind != "class":
            yield from () if any(usage.how == NAMED for usage in release.uses(place)) else (leaf,)
        elif name not in release.lineage(owner) and filled.isdisjoint(_submodules(short)):
            yield short


def _submodules(name: str) -> tuple[str, str]:
    """What the fields for the parts of a class may be called."""
    return f"{name}Submodules", f"{name.removesuffix('Layer')}Submodules"


def classes(name: str, releases: Releases) -> str:
    """In words, what a subclass has to derive from that takes the place of a patch of a class."""
    own, *derived = named(name, releases)
    if not derived:
        return f"`{own}`"
    if own != name.rpartition(".")[2]:
        return f"{_listed([f'`{name}`' for name in (own, *derived)], 'and of')}, as far as your specs name them,"
    # Behind it in the bases: what it has of its own stays, and what it asks its base for is asked of the subclass.
    some = _listed([f"`{name}`" for name in derived], "or")
    return f"`{own}` (where your specs name {some}, one of that and of yours, in this order)"


def where(name: str, releases: Releases) -> str:
    """In words, as what specs name it: `mlp` of `TransformerLayerSubmodules`."""
    fields: dict[str, dict[str, None]] = {}
    for owner, field in (slot.split(".") for own in named(name, releases) for slot in table(releases)[own]):
        fields.setdefault(owner, {})[f"`{field}`"] = None
    shown = list(fields)[:_MOST_SHOWN]
    specs = {"ModuleSpec": " of the layer's `ModuleSpec`", "": ""}
    owners = {owner: specs.get(owner, f" of `{owner}`") for owner in shown}
    said = [f"{_listed(list(fields[owner]), 'and')}{called}" for owner, called in owners.items()]
    return f"{'such as ' if len(fields) > len(shown) else ''}{'; '.join(said)}"


def _listed(words: list[str], link: str, rest: str = "") -> str:
    if len(words) > _MOST_SHOWN + 1:
        words = [*words[:_MOST_SHOWN], rest or f"{len(words) - _MOST_SHOWN} more"]
    return f" {link} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
