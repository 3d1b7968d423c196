"""Where Megatron's own specs name a class, in words.

A slot is a field of a `...Submodules` dataclass, or `module` of a layer's ModuleSpec.
"""

from __future__ import annotations

from functools import cache

from mcore_unpatch.library.model import SLOT
from mcore_unpatch.megatron import api, known
from mcore_unpatch.megatron.layout import COMPARED_IN_SPECS

# A class that more of those derive from is too general for a ModuleSpec to be the answer.
_MOST_DERIVED = 3
_MOST_SHOWN = 2


@cache
def table() -> dict[str, tuple[str, ...]]:
    """The slots of each class that specs name, by its short name, in the newest release that names it."""
    found: dict[str, tuple[str, ...]] = {}
    names = [name for name, line in known.atlas().uses.items() if f"{SLOT}|" in line]
    for release in known.minors():
        for name in names:
            slots = tuple(usage.place for usage in release.uses(name) if usage.how == SLOT)
            if slots:
                found[name.rpartition(".")[2]] = slots
    return found


@cache
def named(name: str) -> tuple[str, ...]:
    """The classes that specs name, of a class (by its dotted name) and those that derive from it, itself first."""
    own, derived = name.rpartition(".")[2], _derived(name)
    if own in table():
        return (own, *derived)
    return tuple(derived) if len(derived) <= _MOST_DERIVED else ()


@cache
def _derived(name: str) -> list[str]:
    """Of the classes that specs name those that derive from one, the most used first, then the plainest."""
    own = name.rpartition(".")[2]
    derived = [one for one in table() if one != own and any(name in api.ancestry(full) for full in api.classes(one))]
    return sorted(derived, key=lambda one: (-len(table()[one]), len(one)))


def is_named(name: str) -> bool:
    """Whether some spec names a class, or one that derives from it."""
    return name.rpartition(".")[2] in table() or bool(_derived(name))


def naming(name: str) -> str:
    """In words, what a spec has to do for a subclass to take the place of such a class: of which class it is."""
    if name.rpartition(".")[2] in table():
        return "a ModuleSpec names it"
    derived = [f"`{one}`" for one in _derived(name)]
    return f"it is one of {_listed(derived, 'or')}, which ModuleSpecs name"


@cache
def holder(name: str, attribute: str) -> str | None:
    """The `...Submodules` in which the spec of a class (by its dotted name) names what `attribute` holds."""
    for one in api.ancestry(name):
        for dataclass in (f"{one}Submodules", f"{one.removesuffix('Layer')}Submodules"):
            if api.attribute_class(dataclass, attribute) is not None:
                return dataclass.rpartition(".")[2]
    return None


def unreached(name: str) -> str:
    """In words, where a spec does not reach a class, or Megatron takes no other in its place."""
    built = (f"`{owner.rpartition('.')[2]}.{attribute}`" for owner, attribute in api.holders(name))
    held = list(dict.fromkeys(built))
    beside = f" No spec reaches {_listed(held, 'and')}, which Megatron builds by that name." if held else ""
    return f"{beside}{COMPARED_IN_SPECS.get(name.rpartition('.')[2], '')}"


def classes(name: str) -> str:
    """In words, what a subclass has to derive from that takes the place of a patch of a class."""
    own, *derived = named(name)
    if not derived:
        return f"`{own}`"
    if own != name.rpartition(".")[2]:
        return f"{_listed([f'`{one}`' for one in (own, *derived)], 'and of')}, as far as your specs name them,"
    return f"`{own}` (also of {_listed([f'`{one}`' for one in derived], 'and')} where your specs name that)"


def where(name: str) -> str:
    """In words, as what specs name it: `mlp` of `TransformerLayerSubmodules`."""
    fields: dict[str, dict[str, None]] = {}
    for owner, field in (slot.split(".") for one in named(name) for slot in table()[one]):
        fields.setdefault(owner, {})[f"`{field}`"] = None
    shown = list(fields)[:_MOST_SHOWN]
    owners = {owner: "the layer's `ModuleSpec`" if owner == "ModuleSpec" else f"`{owner}`" for owner in shown}
    said = [f"{_listed(list(fields[owner]), 'and')} of {called}" for owner, called in owners.items()]
    more = sum(map(len, fields.values())) - sum(len(fields[owner]) for owner in shown)
    return "; ".join([*said, *([f"{more} more"] if more else [])])


def _listed(words: list[str], link: str) -> str:
    if len(words) > _MOST_SHOWN + 1:
        words = [*words[:_MOST_SHOWN], f"{len(words) - _MOST_SHOWN} more"]
    return f" {link} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
