"""What a search found in files that are all the same as before: kept in the user's cache folder, by their contents.

A repository has no say in it: nothing is kept inside it, an entry is named by a digest of every file that could matter,
of the settings and of the tool itself, and only files of the user's own are read back.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import mcore_unpatch
from mcore_unpatch import rewrites
from mcore_unpatch.errors import FileError, UsageError
from mcore_unpatch.findings.finding import Assessment, Finding, Guard, Live, OnStacks, Related
from mcore_unpatch.library.sources import cache_folder
from mcore_unpatch.records import asdict, field, record
from mcore_unpatch.repository.reading import replace_file
from mcore_unpatch.scanner.sources.parsing import Unreadable

_MOST_ENTRIES = 64
_OFF = "MCORE_UNPATCH_NO_CACHE"
_NOT_KEPT = (AttributeError, OSError, KeyError, TypeError, ValueError)  # never kept, or another tool's


@record
class SearchResult:
    """What one search gave."""

    findings: list[Finding] = field(default_factory=list)
    errors: list[FileError] = field(default_factory=list)
    silenced: list[Finding] = field(default_factory=list)


def folder(top: Path) -> Path | None:
    """Where entries are kept; None where that would be inside the repository, or is not the user's own."""
    if os.environ.get(_OFF):
        return None
    place = cache_folder().resolve() / "findings"
    if place.is_relative_to(top):
        return None
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = place.lstat()
    except OSError:
        return None
    return place if facts.st_uid == os.geteuid() else None


def key(settings: object, paths: Iterable[str], read: Callable[[str], bytes]) -> str:
    """The name of an entry: a digest of the tool, some settings, and the contents of files."""
    digest = hashlib.blake2b(f"{_tool()}\0{settings!r}".encode(), digest_size=24)
    for path in paths:
        data = _bytes(path, read)
        digest.update(f"\0{len(data)} {path}\0".encode(errors="surrogateescape"))
        digest.update(data)
    return digest.hexdigest()


def _bytes(path: str, read: Callable[[str], bytes]) -> bytes:
    """A file as a key has it; one that cannot be read is told by why not."""
    try:
        return read(path)
    except (OSError, Unreadable) as error:
        return repr(error).encode()


def recall(place: Path, name: str) -> SearchResult | None:
    """What was kept under a name, if anything."""
    try:
        data = _stored(place / name)
        return SearchResult(
            [finding_of(row) for row in data["findings"]],
            [FileError(**row) for row in data["errors"]],
            [finding_of(row) for row in data["silenced"]],
        )
    except _NOT_KEPT:
        return None


def keep(place: Path, name: str, outcome: SearchResult) -> None:
    """Keep it, and let go of the entries that were not asked for longest."""
    _store(place / name, asdict(outcome))


def _stored(file: Path) -> Any:
    """What a file of the cache holds; it counts as asked for from now on."""
    if file.is_symlink():
        raise ValueError(file)
    data = json.loads(file.read_bytes())
    os.utime(file)
    return data


def _store(file: Path, data: object) -> None:
    """Write a file of the cache, and let go of the oldest ones; a full disk is no error."""
    try:
        replace_file(file, json.dumps(data))
        entries = sorted(file.parent.iterdir(), key=lambda entry: entry.lstat().st_mtime)
        for entry in entries[:-_MOST_ENTRIES]:
            entry.unlink(missing_ok=True)
    except (OSError, UsageError):
        return


def finding_of(data: dict[str, object]) -> Finding:
    """A finding as it was before it was written down."""
    live = dict(data["live"])  # type: ignore[call-overload]
    guards = tuple(Guard(**{**row, "rules_out": tuple(row["rules_out"])}) for row in live["guards"])
    lives = Live(tuple(live["releases"]), live["newer"], tuple(live["depends"]), guards)
    related = tuple(Related(**row) for row in data["related"])  # type: ignore[attr-defined]
    names = ("steps", "breaks", "fails", "callers", "asked", "affected", "touches")
    texts: dict[str, tuple[str, ...]] = {name: tuple(data[name]) for name in names}  # type: ignore[arg-type]
    known = dict(data["assessment"])  # type: ignore[call-overload]
    stacks = tuple(OnStacks(tuple(row["stacks"]), row["outcome"], row["verdict"]) for row in known["on_stacks"])
    assessment = Assessment(**{**known, "on_stacks": stacks})
    return Finding(**{**data, "live": lives, "related": related, "assessment": assessment, **texts})  # type: ignore[arg-type]


@cache
def _tool() -> str:
    """What would find something else: another version of this package, of a codemod's package, or of Python."""
    folders = (*map(Path, mcore_unpatch.__path__), *rewrites.folders())
    files = [file for folder in folders for file in sorted(folder.rglob("*.*"))]
    modules = [sys.modules[type(codemod).__module__].__file__ for codemod in rewrites.codemods() if codemod.package]
    files += [Path(module) for module in modules if module]
    facts = [(str(file), (seen := file.stat()).st_size, seen.st_mtime_ns) for file in files if file.suffix != ".pyc"]
    return repr((sys.version, facts))
