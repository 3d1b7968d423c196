"""Every release of Megatron Core since 0.12, packed: what each defined, with signatures and digests.

`history.bin` is made from the released wheels by `tools/build_megatron_history.py`. A name is written once, with an
entry for each release in which it changed.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from mcore_unpatch.megatron.definitions import DIGEST_BYTES, STATEMENT_BYTES, Definition, Snapshot
from mcore_unpatch.megatron.roots import expand, shorten

# Letters for the kinds, `-` where a release no longer has the name.
_KINDS = {"f": "function", "c": "class", "v": "value", "i": "import", "a": "attribute", "m": "module"}
_BODILESS = "aim"
_LETTERS = {kind: letter for letter, kind in _KINDS.items()}


def pack(snapshots: Mapping[str, Snapshot]) -> bytes:
    """The file for snapshots by release, oldest first; the same bytes for the same releases."""
    names: dict[str, list[tuple[int, Definition | None]]] = {}
    for number, snapshot in enumerate(snapshots.values()):
        for name in sorted({*names, *snapshot}):
            entries = names.setdefault(name, [])
            if not entries or entries[-1][1] != snapshot.get(name):
                entries.append((number, snapshot.get(name)))
    index: dict[str, list[Any]] = {}
    blobs: list[bytes] = []
    for name, entries in sorted(names.items()):
        words: list[Any] = []
        signature = ""
        for number, definition in entries:
            words.append(number)
            if definition is None:
                words.append("-")
                continue
            same = definition.signature == signature
            signature = definition.signature
            length = len(definition.statements) // STATEMENT_BYTES
            words += [_LETTERS[definition.kind], 0 if same else signature, length]
            blobs.append(definition.digest + definition.statements)
        index[shorten(name)] = words
    text = json.dumps({"releases": list(snapshots), "names": index}, separators=(",", ":")).encode()
    content = len(text).to_bytes(4) + text + b"".join(blobs)
    return lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)


def releases() -> tuple[str, ...]:
    """The releases that are known, oldest first."""
    return _known().releases


@cache
def snapshot(release: str) -> Snapshot:
    """What a known release defines."""
    known = _known()
    number = known.releases.index(release)
    found: dict[str, Definition] = {}
    for name, entries in known.names.items():
        for since, definition in reversed(entries):
            if since <= number:
                if definition is not None:
                    found[name] = definition
                break
    return found


class _Names(Snapshot):
    """What a known release defines, looked up name by name."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __getitem__(self, name: str) -> Definition:
        for since, definition in reversed(_known().names[name]):
            if since <= self._number and definition is not None:
                return definition
            if since <= self._number:
                break
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in _known().names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def names_of(release: str) -> Snapshot:
    """The same as `snapshot`, for a few questions: nothing is built but what is asked for."""
    return _Names(_known().releases.index(release))


def every_name() -> Iterable[str]:
    """Every name that some release has."""
    return _known().names


def versions_of(name: str) -> list[tuple[str, Definition | None]]:
    """The definitions a name has had: the first release with each, None where it was taken away."""
    known = _known()
    return [(known.releases[number], definition) for number, definition in known.names.get(name, [])]


def clear() -> None:
    """Forget what was read, after the file was written anew."""
    _known.cache_clear()


class _History(NamedTuple):
    releases: tuple[str, ...]
    names: dict[str, list[tuple[int, Definition | None]]]


@cache
def _known() -> _History:
    return unpack(files("mcore_unpatch.megatron").joinpath("history.bin").read_bytes())


def unpack(packed: bytes) -> _History:
    """The content of a file that `pack` has made."""
    content = lzma.decompress(packed)
    start = 4 + int.from_bytes(content[:4])
    data = json.loads(content[4:start])
    names: dict[str, list[tuple[int, Definition | None]]] = {}
    for name, words in data["names"].items():
        entries: list[tuple[int, Definition | None]] = []
        names[expand(name)] = entries
        signature = ""
        each = iter(words)
        for number in each:
            letter = next(each)
            if letter == "-":
                entries.append((number, None))
                continue
            written = next(each)
            signature = signature if written == 0 else written
            middle = start + (0 if letter in _BODILESS else DIGEST_BYTES)
            end = middle + next(each) * STATEMENT_BYTES
            entries.append((number, Definition(_KINDS[letter], signature, content[start:middle], content[middle:end])))
            start = end
    return _History(tuple(data["releases"]), names)
