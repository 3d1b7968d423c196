"""Where Megatron's own specs name a class, in words.

A slot is a field of a `...Submodules` dataclass, or `module` of a ModuleSpec: of a layer's, or of one in no field.
Where `releases` are given, of these alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.library.facts import How
from mcore_unpatch.megatron import known, packed
from mcore_unpatch.megatron.layout import COMPARED_IN_SPECS

# A class that more of those derive from is too general for a ModuleSpec to be the answer.
_MOST_DERIVED = 3
_MOST_SHOWN = 2


Releases = tuple[Detailed, ...]


@cache
def table(releases: Releases = ()) -> dict[str, tuple[str, ...]]:
    """The slots of each class that specs name, by its short name, in the newest release that names it."""
    every = [row for release in releases or known.minors() for row in _of_release(release).items()]
    return dict(every)


@cache
def _of_release(release: Detailed) -> dict[str, tuple[str, ...]]:
    named = ((name, slots) for name, slots in release.in_specs.items() if slots or _is_module_class(name))
    return {name.rpartition(".")[2]: slots or (".module",) for name, slots in named}


def _is_module_class(name: str) -> bool:
    """Whether a class is a `torch.nn.Module`; Transformer Engine's layers are."""
    parts = (base.rpartition(".") for base in packed.library().lineage(name))
    return any(leaf in {"Module", "MegatronModule"} or package.endswith("te.pytorch") for package, _, leaf in parts)


def _classes(name: str) -> list[str]:
    """Every class of that name."""
    library = packed.library()
    return [f"{module}.{name}" for module in library.modules_with(name) if library.is_class(f"{module}.{name}")]


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
    derived = [
        one for one in slots if one != own and any(name in packed.library().lineage(full) for full in _classes(one))
    ]
    return sorted(derived, key=lambda other: (-len(slots[other]), len(other)))


def naming(name: str, release: Detailed, method: str = "") -> str:
    """In words, where a subclass of a class can take its place, for a method of it; nothing where no spec names one."""
    if name.rpartition(".")[2] in table((release,)):
        return "a ModuleSpec names it"
    derived = [f"`{other}`" for other in _derived(name, (release,)) if _runs(name, method, other, release)]
    many = f"one of {_listed(derived, 'or', 'others')}, which ModuleSpecs name"
    return f"it is {many if len(derived) > 1 else f'a {derived[0]}, which a ModuleSpec names'}" if derived else ""


def _runs(base: str, method: str, heir: str, release: Detailed) -> bool:
    """Whether a class that derives from one runs a method of it: it has no other, or one that calls it."""
    if not method or method.startswith("__"):
        return True
    callers = {f"{base}.{method}", *(use.place for use in release.uses(f"{base}.{method}"))}
    lineages = [own for full in _classes(heir) if base in (own := release.lineage(full))]
    owners = (next((one for one in own if release.entry(f"{one}.{method}")), base) for own in lineages)
    return any(f"{owner}.{method}" in callers for owner in owners)


@cache
def holder(name: str, attribute: str) -> str | None:
    """The `...Submodules` in which the spec of a class (by its dotted name) names what `attribute` holds."""
    library = packed.library()
    for ancestor in library.lineage(name):
        for dataclass in _submodules(ancestor):
            versions = [
                entry for cls in library.lineage(dataclass) for entry in packed.packed().entries(f"{cls}.{attribute}")
            ]
            if any(entry.trait("type") for entry in versions):
                return dataclass.rpartition(".")[2]
    return None


def built_by_name(name: str, releases: Releases) -> str:
    """In words, who builds a class by its name, whatever specs say; nothing where nobody does."""
    told = (f"`{builder}`" for release in releases for builder in _builders(release.name_of(name), release))
    who = list(dict.fromkeys(told))
    return f"{_listed(who, 'and')} {'build' if len(who) > 1 else 'builds'} it by name" if who else ""


def unreached(name: str, releases: Releases) -> str:
    """In words, where a spec does not reach a class, or Megatron takes no other in its place."""
    does = built_by_name(name, releases)
    beside = f" {does}, out of reach of a spec: keep the patch for that." if does else ""
    since, until, compared = COMPARED_IN_SPECS.get(name.rpartition(".")[2], ((), (), ""))
    there = any(since <= release.version[:2] <= until for release in releases)
    return f"{beside}{compared if there else ''}"


@cache
def _built() -> dict[str, list[str]]:
    """The attributes that hold what a class builds by name, by that name."""
    found: dict[str, list[str]] = {}
    for name, line in packed.packed().lines.items():
        for entry in packed.packed().entries(name) if "builds:" in line else ():
            if (built := entry.trait("builds")) and name not in found.setdefault(built, []):
                found[built].append(name)
    return found


def _builders(name: str, release: Detailed) -> Iterator[str]:
    """Who builds a class by name, whatever specs say: classes, and functions that no spec names."""
    uses = (*release.uses(name), *release.uses(f"{name}.__init__"))
    held = (holder for holder in _built().get(name, ()) if release.entry(holder))
    filled = {slot.partition(".")[0] for slot in table((release,)).get(name.rpartition(".")[2], ())}
    for place in (*(use.place for use in uses if use.how in (How.CALLED, How.EXACT)), *held):
        owner, _, leaf = place.rpartition(".")
        entry, short = release.entry(owner), owner.rpartition(".")[2]
        if entry is None or entry.letter != "c":
            yield from () if any(use.how == How.NAMED for use in release.uses(place)) else (leaf,)
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
