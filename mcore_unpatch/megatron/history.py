"""Every release of Megatron Core since 0.12, packed: what each defined, with signatures and digests.

`history.bin` is made from the released wheels by `tools/build_megatron_history.py`. A name is written once, on its
own line, with an entry for each release in which it changed; a scan reads the lines of the few names that it asks for.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib.resources import files
from io import BytesIO
from typing import Any

from mcore_unpatch.megatron.definitions import DIGEST_BYTES, STATEMENT_BYTES, Definition, Snapshot

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
    lines = [" ".join(snapshots)]
    blobs: list[bytes] = []
    nesting: list[bytes] = []
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
            nesting.append(definition.nesting)
        lines.append(f"{name}\t{json.dumps(words, separators=(',', ':'))}")
    streams = ("\n".join(lines).encode(), b"".join(blobs), b"".join(nesting))
    return b"".join(len(one).to_bytes(4) + one for one in (zlib.compress(stream, 9) for stream in streams))


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
    """What a known release defines, looked up name by name, without digests."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __getitem__(self, name: str) -> Definition:
        for since, definition in reversed(_known().without_digests(name)):
            if since <= self._number and definition is not None:
                return definition
            if since <= self._number:
                break
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in _known().lines if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def names_of(release: str) -> Snapshot:
    """The same as `snapshot`, without digests and for a few questions: nothing is built but what is asked for."""
    return _Names(_known().releases.index(release))


def every_name() -> Iterable[str]:
    """Every name that some release has."""
    return _known().lines


def versions_of(name: str) -> list[tuple[str, Definition | None]]:
    """The definitions a name has had: the first release with each, None where it was taken away."""
    known = _known()
    return [(known.releases[number], definition) for number, definition in known.names.get(name, [])]


def clear() -> None:
    """Forget what was read, after the file was written anew."""
    _known.cache_clear()


class _History:
    """The content of the file: `lines` by name, and the definitions once someone asks for them."""

    def __init__(self, packed: bytes) -> None:
        index, *self._streams = _streams(packed)
        first, *lines = zlib.decompress(index).decode().split("\n")
        self.releases = tuple(first.split())
        self.lines: dict[str, str] = dict(line.split("\t", 1) for line in lines)
        self._asked: dict[str, list[tuple[int, Definition | None]]] = {}

    def without_digests(self, name: str) -> list[tuple[int, Definition | None]]:
        """The definitions of a name by the number of the release; raises `KeyError`."""
        if name not in self._asked:
            self._asked[name] = list(_entries(self.lines[name], BytesIO(), BytesIO()))
        return self._asked[name]

    @cached_property
    def names(self) -> dict[str, list[tuple[int, Definition | None]]]:
        """The definitions of every name."""
        digests, nesting = (BytesIO(zlib.decompress(stream)) for stream in self._streams)
        return {name: list(_entries(line, digests, nesting)) for name, line in self.lines.items()}


@cache
def _known() -> _History:
    return unpack(files("mcore_unpatch.megatron").joinpath("history.bin").read_bytes())


def unpack(packed: bytes) -> _History:
    """The content of a file that `pack` has made."""
    return _History(packed)


def _streams(packed: bytes) -> Iterator[bytes]:
    while packed:
        end = 4 + int.from_bytes(packed[:4])
        yield packed[4:end]
        packed = packed[end:]


def _entries(line: str, digests: BytesIO, nesting: BytesIO) -> Iterator[tuple[int, Definition | None]]:
    signature = ""
    each = iter(json.loads(line))
    for number in each:
        letter = next(each)
        if letter == "-":
            yield number, None
            continue
        written = next(each)
        signature = signature if written == 0 else written
        length = next(each)
        digest = b"" if letter in _BODILESS else digests.read(DIGEST_BYTES)
        statements = digests.read(length * STATEMENT_BYTES)
        yield number, Definition(_KINDS[letter], signature, digest, statements, nesting.read(length))
