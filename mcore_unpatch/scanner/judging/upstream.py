"""Whether releases of Megatron have by themselves what a patch file changes, or still read as it expects.

The statements of a hunk are compared with those of the function in each known release, in order and with the blocks
they stand in; comments, docstrings, annotations and formatting do not count.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from itertools import islice, takewhile

from mcore_unpatch.codemods.fingerprints.normalise import DEEPEST, nesting
from mcore_unpatch.megatron import history
from mcore_unpatch.megatron.definitions import (
    STATEMENT_BYTES,
    Definition,
    Function,
    definitions,
    describe,
    digest,
    statement_digests,
)
from mcore_unpatch.megatron.versions import RELEASES, Version, parse_version
from mcore_unpatch.scanner.sources.fragments import Statement
from mcore_unpatch.scanner.sources.hunks import Place
from mcore_unpatch.scanner.sources.segments import Segment

_FEWEST = 2  # statements that tell a place: digests are short


@dataclass(slots=True)
class Change:
    """All that a patch file does to one definition: `name` is below `module`, empty for the module itself."""

    module: str
    name: str
    segments: list[Segment] = field(default_factory=list)

    @property
    def target(self) -> str:
        """The dotted name."""
        return f"{self.module}.{self.name}" if self.name else self.module

    @property
    def has_code(self) -> bool:
        """Whether it changes more than comments."""
        return any(segment.has_code for segment in self.segments)

    @property
    def is_new(self) -> bool:
        """Whether the patch file itself brings the definition."""
        return any(segment.is_new for segment in self.segments)

    @property
    def added(self) -> list[Statement]:
        """The statements it brings in."""
        return [one for segment in self.segments for one in segment.added]

    @property
    def removed(self) -> list[Statement]:
        """The statements it takes away."""
        return [one for segment in self.segments for one in segment.removed]


def since(change: Change, versions: Iterable[Version]) -> str | None:
    """The first release from which on Megatron has the change by itself, up to those that are judged; else None."""
    return _from(lambda release: _has(change, release), versions)


def twin(change: Change, versions: Iterable[Version]) -> tuple[str, str] | None:
    """A function that is added and that Megatron has beside it under another name: that name, and since when."""
    node = next((segment.adds for segment in change.segments if segment.adds is not None), None)
    if not isinstance(node, Function):
        return None
    body = statement_digests(node), nesting(node)[1:]
    if len(body[1]) < _FEWEST:
        return None
    owner, judged = change.target.rpartition(".")[0], releases(versions)
    name = _by_body(change.module, judged[-1]).get((owner, *body)) if judged else None
    found = _from(lambda release: _body(definition(name or "", release)) == body, versions)
    return (name, found) if name is not None and name != change.target and found is not None else None


@cache
def _by_body(module: str, release: str) -> dict[tuple[str, bytes, bytes], str]:
    """The functions of a module by what they are defined in and what they do."""
    return {(name.rpartition(".")[0], *_body(definition(name, release))): name for name in functions_of(module)}


def last_read(change: Change, version: Version) -> str | None:
    """The last release in which the module reads as the hunks expect, where a version no longer does; else None."""
    judged = releases([version])
    if not judged or change.is_new:
        return None
    lost = []
    for segment in change.segments:
        reads = _read_by(change.module, tuple(segment.old.statements)) if not segment.old.split else set()
        before = [release for release in reads if RELEASES.index(release) < RELEASES.index(judged[0])]
        if before and reads.isdisjoint(judged):
            lost.append(max(before, key=RELEASES.index))
    return min(lost, key=RELEASES.index, default=None)


@lru_cache(256)
def _read_by(module: str, wanted: tuple[Statement, ...]) -> set[str]:
    """The releases in which some function of a module has these statements."""
    spans = (span for span in _spans(module) if _find(wanted, span[1]) is not None)
    return {release for releases, _ in spans for release in releases}


@cache
def _spans(module: str) -> tuple[tuple[tuple[str, ...], Definition], ...]:
    """Every form that the functions of a module have had, and the releases that have it."""
    found = []
    for name in functions_of(module):
        versions = history.versions_of(name)
        ends = [RELEASES.index(label) for label, _ in versions[1:]] + [len(RELEASES)]
        for (label, known), end in zip(versions, ends, strict=True):
            if known is not None and known.kind == "function":
                found.append((RELEASES[RELEASES.index(label) : end], known))
    return tuple(found)


def standing(change: Change, version: Version) -> int:
    """How many of the statements it brings in the function has got since the release that the hunks are for."""
    base, judged = last_read(change, version), releases([version])
    if base is None or not judged:
        return 0
    had, has = (Counter(_split(_body(definition(change.target, one))[0])) for one in (base, judged[-1]))
    return (Counter(one.digest for one in change.added) & (has - had)).total()


def locate(module: str, place: Place, statements: Sequence[Statement]) -> Place | None:
    """The function that statements stand in, if one function of the module alone has had them in some release."""
    if len(statements) < _FEWEST:
        return None
    found: dict[str, int] = {}
    for name in functions_of(module):
        inside = name.removeprefix(f"{module}.")
        if not place.cls or inside.startswith(f"{place.cls}."):
            for _, known in history.versions_of(name):
                at = _find(statements, known)
                if at is not None and known is not None:
                    found[inside] = 4 * (statements[0].depth - known.nesting[at] % DEEPEST)
                    break
    if len(found) != 1:
        return None
    inside, indent = next(iter(found.items()))
    owner, _, function = inside.rpartition(".")
    return Place(owner, function, indent, max(indent - 4, 0))


def taking(module: str, place: Place, names: Sequence[str]) -> Place | None:
    """The function with such parameters one after the other, if it is the only one of the module or the class."""
    found: set[str] = set()
    wanted = f" {' '.join(names)} "
    for name in functions_of(module) if len(names) >= _FEWEST else ():
        inside = name.removeprefix(f"{module}.")
        if not place.cls or inside.startswith(f"{place.cls}."):
            signatures = (known.signature for _, known in history.versions_of(name) if known is not None)
            if any(wanted in f" {signature.replace('=', '')} " for signature in signatures):
                found.add(inside)
    if len(found) != 1:
        return None
    owner, _, function = found.pop().rpartition(".")
    return Place(owner, function, 4 if owner else 0)


@cache
def functions_of(module: str) -> tuple[str, ...]:
    """The functions and methods that a module has had."""
    every, prefix = _names(), f"{module}."
    inside = takewhile(lambda name: name.startswith(prefix), islice(every, bisect_left(every, prefix), None))
    names = (name for name in inside if _is_near(name, module))
    return tuple(name for name in names if any(one and one.kind == "function" for _, one in history.versions_of(name)))


@cache
def _names() -> list[str]:
    return sorted(history.every_name())


def _is_near(name: str, module: str) -> bool:
    first, *rest = name.removeprefix(f"{module}.").split(".")
    kinds = {one.kind for _, one in history.versions_of(f"{module}.{first}") if one}
    return len(rest) < 2 and "module" not in kinds


def is_gone(name: str, version: Version) -> bool:
    """Whether older releases have a name, and no release of a version has."""
    judged = releases([version])
    older = RELEASES[: RELEASES.index(judged[0])] if judged else ()
    return any(map(partial(definition, name), older)) and not any(map(partial(definition, name), judged))


def last_with(name: str) -> str:
    """The last release that has a name."""
    return next(release for release in reversed(RELEASES) if definition(name, release))


@cache
def definition(name: str, release: str) -> Definition | None:
    """What a release defines under a name."""
    number, found = RELEASES.index(release), None
    for label, known in history.versions_of(name):
        if RELEASES.index(label) <= number:
            found = known
    return found


def _from(holds: Callable[[str], bool], versions: Iterable[Version]) -> str | None:
    judged = releases(versions)
    if not judged or not all(map(holds, judged)):
        return None
    first = RELEASES.index(judged[0])
    while first and holds(RELEASES[first - 1]):
        first -= 1
    return RELEASES[first]


def releases(versions: Iterable[Version]) -> list[str]:
    """The known releases of some minor versions."""
    wanted = set(versions)
    return [release for release in RELEASES if parse_version(release) in wanted]


def _has(change: Change, release: str) -> bool:
    """Whether a release has everything that the hunks do to a definition, and nothing of what they take away."""
    coded = [segment for segment in change.segments if segment.has_code]
    known = definition(change.target, release)
    if change.is_new:
        added = [segment.adds for segment in coded if not segment.unread and not segment.old.statements]
        alone = len(added) == len(coded) == 1
        return known is not None and alone and added[0] is not None and digest(added[0]) == known.digest
    if known is not None and known.kind == "function":
        return all(_function_has(segment, known) for segment in coded) and any(one.added or one.moved for one in coded)
    return bool(coded) and all(_names_stand(change, segment, release) for segment in coded)


def _function_has(segment: Segment, known: Definition) -> bool:
    if segment.unread or not _signature_has(segment, known):
        return False
    new, old = segment.new.statements, segment.old.statements
    if not segment.added and not segment.removed and not segment.moved:
        return True  # the head alone
    if (segment.removed and not segment.added) or len(new) < _FEWEST:
        return False  # that something is not there proves little
    there = len(list(_places(new, known)))
    # What it expects may stand within what it makes of it, where it adds above or below.
    within = sum(_same(old, new[at : at + len(old)]) for at in range(len(new) - len(old) + 1)) if old else 0
    return there > 0 and len(list(_places(old, known))) <= there * within


def _signature_has(segment: Segment, known: Definition) -> bool:
    if segment.new.signature is not None and segment.new.signature != segment.old.signature:
        return segment.new.signature == known.signature
    names = {word.strip("*=") for word in known.signature.split()}
    new, old = segment.new.parameters.keys(), segment.old.parameters.keys()
    return new - old <= names and names.isdisjoint(old - new)


def _names_stand(change: Change, segment: Segment, release: str) -> bool:
    """Whether the names that are bound in a module or a class are bound so in a release, each on its own."""
    if segment.unread or segment.old.signature or segment.new.signature or segment.old.parameters:
        return False
    wanted, unwanted = _bound(change, segment.added), _bound(change, segment.removed)
    if not wanted or unwanted is None:
        return False
    taken_away = all(definition(name, release) != had for name, had in unwanted.items())
    return taken_away and all(definition(name, release) == has for name, has in wanted.items())


def _bound(change: Change, statements: list[Statement]) -> dict[str, Definition] | None:
    """The names that statements bind; None where some of them do something else."""
    found: dict[str, Definition] = {}
    for one in statements:
        bound = list(definitions([one.node], change.target))
        compound = isinstance(one.node, ast.If | ast.With | ast.Try | ast.ClassDef | Function)
        if not bound or compound or one.depth != bool(change.name):
            return None
        for name, node in bound:
            found[name] = describe(name, node, change.module, False)
    return found


def _body(known: Definition | None) -> tuple[bytes, bytes]:
    return (known.statements, known.nesting) if known is not None else (b"", b"")


def _split(digests: bytes) -> list[bytes]:
    return [digests[at : at + STATEMENT_BYTES] for at in range(0, len(digests), STATEMENT_BYTES)]


def _find(wanted: Sequence[Statement], known: Definition | None) -> int | None:
    """Where statements stand in a function one after the other, in the same blocks."""
    return next(_places(wanted, known), None)


def _places(wanted: Sequence[Statement], known: Definition | None) -> Iterator[int]:
    if known is None or not wanted:
        return
    digests = b"".join(one.digest for one in wanted)
    at = known.statements.find(digests)
    while at >= 0:
        place = at // STATEMENT_BYTES
        if at % STATEMENT_BYTES == 0 and _same_blocks(wanted, known.nesting[place : place + len(wanted)]):
            yield place
        at = known.statements.find(digests, at + 1)


def _same(some: Sequence[Statement], others: Sequence[Statement]) -> bool:
    shapes = bytes(one.depth + DEEPEST * one.block for one in others)
    return [one.digest for one in some] == [one.digest for one in others] and _same_blocks(some, shapes)


def _same_blocks(wanted: Sequence[Statement], nested: bytes) -> bool:
    shift = wanted[0].depth - nested[0] % DEEPEST
    pairs = list(zip(wanted, nested, strict=True))
    deep = all(one.depth - shift == at % DEEPEST for one, at in pairs)
    return deep and all(one.block == at // DEEPEST for one, at in pairs[1:])
