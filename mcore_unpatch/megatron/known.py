"""The releases of Megatron Core that come with this tool: `models.bin`, made by `tools/build_models.py`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from mcore_unpatch.library.fact import Fact
from mcore_unpatch.library.model import CALLED, EXACT, Model, Usage
from mcore_unpatch.library.packing import Atlas
from mcore_unpatch.megatron.layout import EXTERNAL_METHODS
from mcore_unpatch.megatron.versions import (
    PACKAGES,
    RELEASES,
    Version,
    is_in_no_wheel,
    minor,
    parse_version,
    reached,
    within,
)


@cache
def atlas() -> Atlas:
    """All of them."""
    return Atlas(files("mcore_unpatch.megatron").joinpath("models.bin").read_bytes())


def model(release: str) -> Model:
    """One release."""
    return atlas().model(release)


_lent: dict[Version, Model] = {}  # by the version that a source of the user's speaks for


def lend(version: Version, source: Model) -> None:
    """Let a source of the user's speak for a version, in this process."""
    _lent[version] = source


def newest(version: Version) -> Model:
    """A release, or the newest of a minor version; the newest of all speaks for later ones."""
    return _lent[version] if version in _lent else _newest(version)


@cache
def _newest(version: Version) -> Model:
    return model((reached(version) or RELEASES[:1])[-1])


@cache
def has(name: str, release: str) -> bool:
    """Whether a release has a name, what its classes inherit from torch included."""
    return holds(model(release), name)


def holds(known: Model, name: str) -> bool:
    """Whether a model has a name, what its classes inherit from torch and its modules work out included."""
    if _holds(known, name):
        return True
    owner, _, leaf = name.rpartition(".")
    holder = known.find(owner) if within(owner) else None
    if holder is None or holder.fact.kind != "class":
        return holder is not None and f"{holder.name}.__getattr__" in known.facts  # which may give any name
    outside = (base.rpartition(".")[2] for base in known.lineage(holder.name) if not within(base))
    return any(leaf in EXTERNAL_METHODS.get(base, ()) for base in outside)


@cache
def name_on(known: Model, name: str) -> str:
    """The name under which a release has what later ones define elsewhere, and re-export from there."""
    newest = last(name) if known.find(name) is None else None
    if newest is None or (known.label in RELEASES and not came_after(name, known.label)):
        return name  # it is there, nowhere, or gone
    later, parts = model(newest), name.split(".")
    for cut in range(len(parts), len(parts) - 2, -1):  # a function or class, or a method of a class
        whole, rest = ".".join(parts[:cut]), parts[cut:]
        for other in known.ending(parts[cut - 1]):
            found = later.find(other)
            if found is not None and found.name == whole != other and known.find(other) is not None:
                return ".".join([other, *rest])
    return name


def lacking(known: Model, name: str) -> str:
    """The package of a name that a model does not hold at all: a wheel may lack what a checkout has; else nothing."""
    package = next((package for package in PACKAGES if f"{name}.".startswith(f"{package}.")), "")
    return package if package and not _holds(known, package) and not _is_checkout(known) else ""


@cache
def _is_checkout(known: Model) -> bool:
    """Whether a model has a package that no wheel has: what it lacks then is not there."""
    return any(_holds(known, package) for package in PACKAGES if is_in_no_wheel(package))


def _holds(known: Model, package: str) -> bool:
    """Whether a name is there: a folder of modules is a package without an `__init__.py` too."""
    return known.find(package) is not None or any(True for _ in known.members(package))


def ever(name: str) -> bool:
    """Whether some release has a name."""
    return last(name) is not None


@cache
def first(name: str) -> str | None:
    """The oldest release that has a name."""
    return next((release for release in RELEASES if has(name, release)), None)


def came_after(name: str, release: str) -> bool:
    """Whether a name is younger than a release."""
    oldest = first(name)
    return oldest is not None and release in RELEASES and RELEASES.index(oldest) > RELEASES.index(release)


@cache
def last(name: str) -> str | None:
    """The last release that has a name."""
    return next((release for release in reversed(RELEASES) if has(name, release)), None)


def is_gone(name: str, version: Version, imported: bool = False) -> bool:
    """Whether a version no longer has a name that an older one defined there, or `imported`."""
    owner, _, leaf = name.rpartition(".")
    if leaf.startswith("__") and holds(newest(version), owner):
        return False  # Python itself may call it
    known = last(name)
    if known is None or known not in reached(version)[:-1]:
        return False
    fact = model(known).facts.get(name)
    kinds = ("import",) if imported else ("function", "class", "module")  # what was imported may be kept for others
    return fact.kind in kinds if fact is not None else not imported


def parameter_names(name: str, known: Model) -> tuple[str, ...] | None:
    """The parameters of a function, or of the constructor of a class; None where the source does not tell."""
    if (found := known.function(name)) is None:
        return None
    return tuple(word.partition("=")[0].strip("*") for word in found.fact.detail.split() if word not in "*/")


def needed(name: str, release: Model) -> tuple[str, ...]:
    """The packages without which a release cannot import a dotted name; `optional` where only a condition is known."""
    facts = release.facts
    while within(name):
        fact = facts.get(name)
        if fact is not None and fact.trait("optional") is not None:
            return ("optional",)
        if fact is not None and (packages := fact.trait("needs")):
            return tuple(packages.split(","))
        name = name.rpartition(".")[0]
    return ()


def minors() -> list[Model]:
    """The newest release of each minor version, oldest first."""
    return [newest(version) for version in dict.fromkeys(minor(parse_version(release)) for release in RELEASES)]


def fates(name: str) -> list[tuple[str, Fact | None]]:
    """A name in each minor version: its release, and the fact that is found there."""
    found = ((minor.label, minor.find(name_on(minor, name))) for minor in minors())
    return [(label, known.fact if known else None) for label, known in found]


@cache
def moved_to(name: str) -> str | None:
    """Where the newest release has what stood under a name that is gone; None where nothing is in its place."""
    newest_model = model(RELEASES[-1])
    release = last(name)
    if release is None or newest_model.find(name) is not None:
        return None
    known = (old := model(release)).find(name)
    return newest_model.moved(known.name, known.fact, old) if known is not None else None


def built(name: str, release: Model) -> Usage | None:
    """The use that builds a class by its name."""
    return next((usage for usage in release.uses(name) if usage.how in (CALLED, EXACT)), None)


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
    alike = (
        [other for other in release.ending(short) if _is_module(other, release)] if _is_module(name, release) else []
    )
    return f"{above}.{short}" if len(alike) > 1 or short == "torch" else short


def _is_module(place: str, release: Model) -> bool:
    fact = release.facts.get(place)
    return fact is not None and fact.kind == "module"
