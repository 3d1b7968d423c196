"""Where a release defines a name: re-exports and inherited methods lead to the definition itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from mcore_unpatch.megatron import api, history
from mcore_unpatch.megatron.definitions import Definition, Snapshot
from mcore_unpatch.megatron.layout import EXTERNAL_METHODS
from mcore_unpatch.megatron.roots import within

_MOST_HOPS = 12


@dataclass(frozen=True)
class Found:
    """A definition, and the dotted name it stands under."""

    name: str
    definition: Definition


def find(names: Snapshot, name: str, hops: int = 0) -> Found | None:
    """The definition behind a dotted name; None where the release has no such name."""
    definition = names.get(name)
    if definition is not None and definition.kind != "import":
        return Found(name, definition)
    if hops > _MOST_HOPS:
        return None
    if definition is not None:
        inside = within(definition.signature)
        return find(names, definition.signature, hops + 1) if inside else Found(name, definition)
    owner_name, _, leaf = name.rpartition(".")
    owner = find(names, owner_name, hops + 1) if within(owner_name) else None
    if owner is None:
        return None
    if owner.name != owner_name:
        return find(names, f"{owner.name}.{leaf}", hops + 1)
    if owner.definition.kind == "value":  # another name of a class
        alias = api.lookup(owner_name)
        return find(names, f"{alias.name}.{leaf}", hops + 1) if alias and alias.name != owner_name else None
    if owner.definition.kind == "class":
        bases = (find(names, f"{base}.{leaf}", hops + 1) for base in _bases(names, owner))
        return next(filter(None, bases), None)
    star = names.get(f"{owner_name}.*")
    return find(names, f"{star.signature.removesuffix('*')}{leaf}", hops + 1) if star else None


def _bases(names: Snapshot, owner: Found) -> Iterator[str]:
    module = owner.name.rpartition(".")[0]
    for base in owner.definition.signature.split():
        if found := find(names, f"{module}.{base}"):
            yield found.name


@cache
def has(name: str, release: str) -> bool:
    """Whether a known release has a name, what its classes inherit from torch included."""
    if find(history.names_of(release), name) is not None:
        return True
    owner, _, leaf = name.rpartition(".")
    inherited = any(leaf in methods for methods in EXTERNAL_METHODS.values()) and api.has_callable(owner, leaf)
    return inherited and has(owner, release)


@cache
def ever(name: str) -> bool:
    """Whether some known release has a name."""
    return any(has(name, release) for release in reversed(history.releases()))


@cache
def first(name: str) -> str | None:
    """The oldest known release that has a name."""
    return next((release for release in history.releases() if has(name, release)), None)


@cache
def parameters(name: str, release: str) -> tuple[str, ...] | None:
    """The parameters of a function, or of the constructor of a class; None where a release does not tell."""
    found = find(history.names_of(release), name)
    if found is not None and found.definition.kind == "class":
        found = find(history.names_of(release), f"{found.name}.__init__")
    if found is None or found.definition.kind != "function":
        return None
    words = found.definition.signature.split()
    return tuple(word.strip("*=") for word in words if word not in ("*", "/"))
