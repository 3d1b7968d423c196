"""What became of names of Megatron Core, release by release."""

from __future__ import annotations

from functools import cache

from mcore_unpatch.library.detailed import Detailed, Releases
from mcore_unpatch.library.facts import Definition, How, Use
from mcore_unpatch.library.packed import Packed
from mcore_unpatch.megatron import packed
from mcore_unpatch.megatron.parts import LIBRARY
from mcore_unpatch.megatron.versions import PACKAGES, RELEASES, Version, is_in_no_wheel, minor, parse_version, reached

_OF_MODELS = tuple(
    f"{PACKAGES[0]}.{package}."
    for package in ("transformer", "models", "tensor_parallel", "extensions", "ssm", "optimizer")
)


def model(release: str) -> Detailed:
    """One release."""
    return packed.details().release(release)


_lent: dict[Version, tuple[Packed, Detailed]] = {}  # by the version that a source of the user's speaks for


def lend(version: Version, source: Packed) -> None:
    """Let a source of the user's speak for a version, in this process."""
    _lent[version] = source, of_source(source)


def of_source(source: Packed) -> Detailed:
    """A Megatron that was read from its source, as the newest of all."""
    every = packed.packed().plus(source)
    return Releases(every).at(len(every.labels) - 1)


def lent() -> dict[Version, Packed]:
    """The sources that speak for a version."""
    return {version: source for version, (source, _) in _lent.items()}


def newest(version: Version) -> Detailed:
    """A release, or the newest of a minor version; the newest of all speaks for later ones."""
    return _lent[version][1] if version in _lent else model(packed.stands_for(version))


def has(name: str, release: str) -> bool:
    """Whether a release has a name, what its classes inherit from torch included."""
    return model(release).has(name) is True


def lacking(release: Detailed, name: str) -> str:
    """The package of a name that a release does not hold at all: a wheel may lack what a checkout has; else nothing."""
    package = next((package for package in PACKAGES if f"{name}.".startswith(f"{package}.")), "")
    return package if package and not _holds(release, package) and not _is_checkout(release) else ""


@cache
def _is_checkout(release: Detailed) -> bool:
    """Whether it has a package that no wheel has: what it lacks then is not there."""
    return any(_holds(release, package) for package in PACKAGES if is_in_no_wheel(package))


def _holds(release: Detailed, package: str) -> bool:
    return release.find(package) is not None or any(True for _ in release.members(package))


def ever(name: str) -> bool:
    """Whether some release has a name."""
    return model(RELEASES[-1]).ever(name)


@cache
def last(name: str) -> str | None:
    """The last release that has a name."""
    return next((release for release in reversed(RELEASES) if has(name, release)), None)


def is_gone(name: str, version: Version, imported: bool = False) -> bool:
    """Whether a version no longer has a name that an older one defined there, or `imported`."""
    owner, _, leaf = name.rpartition(".")
    if leaf.startswith("__") and newest(version).has(owner):
        return False  # Python itself may call it
    known = last(name)
    if known is None or known not in reached(version)[:-1]:
        return False
    entry = model(known).entry(name)
    letters = "i" if imported else "fcm"  # what was imported may be kept for others
    return entry.letter in letters if entry is not None else not imported


def minors() -> list[Detailed]:
    """The newest release of each minor version, oldest first."""
    return [newest(version) for version in dict.fromkeys(minor(parse_version(release)) for release in RELEASES)]


def fates(name: str) -> list[tuple[str, Definition | None]]:
    """A name in each minor version: its release, and what is found there."""
    return [(minor.label, minor.define(name)) for minor in minors()]


@cache
def moved_to(name: str) -> str | None:
    """Where the newest release has what stood under a name that is gone; None where nothing is in its place."""
    release, now = last(name), model(RELEASES[-1])
    was = model(release).find(name) if release is not None and now.find(name) is None else None
    return now.moved(was) or None if was is not None else None


@cache
def unique_method_owner(name: str) -> str | None:
    """The class of Megatron's models whose method `name` is, where no other family has one, nor torch's modules."""
    library = packed.library()
    if name.startswith("__") or any(name in methods for methods in LIBRARY.outside.values()):
        return None
    owners = [owner for owner in library.owners(name) if owner.startswith(_OF_MODELS)]
    return next((owner for owner in owners if all(owner in library.lineage(other) for other in owners)), None)


def built(name: str, release: Detailed) -> Use | None:
    """The use that builds a class by its name."""
    return next((use for use in release.uses(name) if use.how in (How.CALLED, How.EXACT)), None)


def module_of(place: str, release: Detailed) -> str:
    """The module that a place is in."""
    while place and not _is_module(place, release):
        place = place.rpartition(".")[0]
    return place


def who(use: Use, verb: str, release: Detailed) -> str:
    """Who does something: the class or the module, of which one function is known, and how many more do it."""
    named = told_apart(use.place if _is_module(use.place, release) else use.place.rpartition(".")[0], release)
    if use.users < 2:
        return f"`{named}` {verb}"
    more = f"{use.users - 1} more classes or modules" if use.users > 2 else "another class or module"
    return f"`{named}` and {more} {verb.removesuffix('s')}"


def told_apart(name: str, release: Detailed) -> str:
    """The last part of a name; of a module the last two where others end in it: `mimo.optimizer`."""
    *_, above, short = name.split(".")
    alike = [entry for _, entry in release.ending(short) if entry.letter == "m"] if _is_module(name, release) else []
    return f"{above}.{short}" if len(alike) > 1 or short == "torch" else short


def _is_module(place: str, release: Detailed) -> bool:
    entry = release.entry(place)
    return entry is not None and entry.letter == "m"
