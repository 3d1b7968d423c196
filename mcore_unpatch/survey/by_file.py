"""What each file gave when it was last analysed: after a change only what the change can reach is analysed again.

What a file gives depends on its own bytes, on those of every file that it imports, directly or not, on the conftest.py
files above a test, and on files that something finds by a text. All of them are in its key. Which files there are at
all, the settings and the tool are in the name that the memory is kept under.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import FileError
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.repository.atomic import replace_file
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.parallel import ScannedPart
from mcore_unpatch.scanner.sources.files import Files
from mcore_unpatch.scanner.sources.parsing import Unreadable
from mcore_unpatch.survey.remembered import finding_of

_LISTS = ("marked", "saying", "testing")


@dataclass
class FileMemory:
    """The results of files by their keys; `versions` tells what a file is judged for."""

    file: Path
    files: Files
    versions: Callable[[str], tuple[Version, ...]]
    _entries: dict[str, Any] = field(default_factory=dict)
    _links: dict[str, list[str]] = field(default_factory=dict)  # files that a file was seen to find by a text
    _keys: dict[str, str] = field(default_factory=dict)

    def recall(self, paths: Iterable[str]) -> tuple[ScannedPart, list[str]]:
        """What the files gave that are as they were, and those that have to be analysed."""
        try:
            stored = json.loads(self.file.read_bytes()) if not self.file.is_symlink() else {}
            self._entries, self._links = dict(stored["entries"]), dict(stored["links"])
            os.utime(self.file)  # what was not asked for longest is let go
        except (OSError, ValueError, KeyError, TypeError):
            self._entries, self._links = {}, {}
        self._keys = _Keys(self._depends, self._own).of(paths)
        known, changed = ScannedPart(), []
        for path, key in self._keys.items():
            part = _part(path, self._entries.get(path), key)
            if part is None:
                changed.append(path)
            else:
                known.add(part)
        return known, changed

    def keep(self, part: ScannedPart) -> None:
        """Add what was analysed anew; a full disk is no error."""
        fresh: dict[str, dict[str, Any]] = {path: {"key": key} for path, key in self._keys.items()}
        for name in _LISTS:
            for path in getattr(part, name):
                fresh[path][name] = True
        for finding in part.findings:
            fresh[finding.path].setdefault("findings", []).append(asdict(finding))
        for error in part.errors:
            fresh[error.path].setdefault("errors", []).append(asdict(error))
        if part.links:  # they count from now on, for everybody who imports the file that has one
            for importer, target in sorted(part.links):
                self._links.setdefault(importer, []).append(target)
            keys = _Keys(self._depends, self._own).of(self._keys)
            fresh = {path: {**entry, "key": keys[path]} for path, entry in fresh.items()}
        try:
            replace_file(self.file, json.dumps({"entries": self._entries | fresh, "links": self._links}))
        except (OSError, UsageError):
            return

    def _own(self, path: str) -> bytes:
        try:
            data = self.files.data(path)
        except (OSError, Unreadable) as error:
            data = repr(error).encode()
        return hashlib.blake2b(data, digest_size=16).digest() + repr((path, self.versions(path))).encode()

    def _depends(self, path: str) -> Iterator[str]:
        """The files that a file reads, as far as one step goes."""
        yield from self.files.imported(path)
        yield from self._links.get(path, ())
        folder = path if is_test(path) else ""
        while folder:
            folder = posixpath.dirname(folder)
            if self.files.exists(above := posixpath.join(folder, "conftest.py")):
                yield above


def _part(path: str, entry: Any, key: str) -> ScannedPart | None:
    """What a file gave; None where that was under another key, or cannot be read."""
    part = ScannedPart(1)
    try:
        if entry["key"] != key:
            return None
        part.findings = [finding_of(one) for one in entry.get("findings", ())]
        part.errors = [FileError(**one) for one in entry.get("errors", ())]
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    for name in _LISTS:
        setattr(part, name, [path] if name in entry else [])
    return part


class _Keys:
    """Digests of files with all that they reach; files that import each other have one in common (after Tarjan)."""

    def __init__(self, depends: Callable[[str], Iterable[str]], own: Callable[[str], bytes]) -> None:
        self._depends, self._own = depends, own
        self._order: dict[str, int] = {}
        self._lowest: dict[str, int] = {}
        self._reached: dict[str, list[str]] = {}
        self._open: list[str] = []
        self._found: dict[str, str] = {}

    def of(self, paths: Iterable[str]) -> dict[str, str]:
        """The key of each."""
        wanted = list(paths)
        for path in wanted:
            if path not in self._order:
                self._visit(path)
        return {path: self._found[path] for path in wanted}

    def _visit(self, start: str) -> None:
        waiting = [(start, self._enter(start))]
        while waiting:
            path, left = waiting[-1]
            target = next(left, None)
            if target is None:
                waiting.pop()
                if self._lowest[path] == self._order[path]:
                    self._close(path)
                if waiting:
                    above = waiting[-1][0]
                    self._lowest[above] = min(self._lowest[above], self._lowest[path])
            elif target not in self._order:
                waiting.append((target, self._enter(target)))
            elif target not in self._found:
                self._lowest[path] = min(self._lowest[path], self._order[target])

    def _enter(self, path: str) -> Iterator[str]:
        self._order[path] = self._lowest[path] = len(self._order)
        self._open.append(path)
        self._reached[path] = list(self._depends(path))
        return iter(self._reached[path])

    def _close(self, first: str) -> None:
        """All that is open since a file: these reach each other, and nothing before it."""
        start = self._open.index(first)
        members, self._open = self._open[start:], self._open[:start]
        below = {self._found[target] for path in members for target in self._reached[path] if target in self._found}
        parts = [*sorted(map(self._own, members)), *(key.encode() for key in sorted(below))]
        key = hashlib.blake2b(b"\0".join(parts), digest_size=16).hexdigest()
        self._found.update(dict.fromkeys(members, key))
