"""What was found in files that are the same as before: kept in the user's cache folder, by digests of all contents.

A repository has no say in it: nothing is kept inside it, an entry is named by a digest of every file that could matter,
of the settings and of the tool itself, and only files of the user's own are read back.

Beside what a whole search gave, what each file gave is kept: after a change only what it can reach is analysed again.
That depends on a file's own bytes, on those of every file that it imports, directly or not, on the conftest.py files
above a test, and on files that something finds by a text. Digests of all of them are kept with it. Which files there
are at all, the settings and the tool are in the name that the memory is kept under.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import mcore_unpatch
from mcore_unpatch import rewrites
from mcore_unpatch.errors import FileError, UsageError
from mcore_unpatch.findings.finding import Assessment, Finding, Guard, Live, OnStacks, Related
from mcore_unpatch.library.sources import cache_folder
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.records import asdict, dataclass, field, record
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.repository.reading import replace_file
from mcore_unpatch.scanner.sources.files import Files
from mcore_unpatch.scanner.sources.parsing import Unreadable
from mcore_unpatch.survey.parallel import ScannedPart

_MOST_ENTRIES = 64
_OFF = "MCORE_UNPATCH_NO_CACHE"
_NOT_KEPT = (AttributeError, OSError, KeyError, TypeError, ValueError)  # never kept, or another tool's
_LISTS = ("marked", "saying", "testing")  # of a part


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


@dataclass
class FileMemory:
    """The results of files, and digests of all that they read; `versions` tells what a file is judged for."""

    file: Path
    files: Files
    versions: Callable[[str], tuple[Version, ...]]
    _entries: dict[str, Any] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)  # empty for a file that not all entries have seen as it is
    _links: dict[str, list[str]] = field(default_factory=dict)  # files that a file was seen to find by a text
    _paths: list[str] = field(default_factory=list)

    def recall(self, paths: Iterable[str]) -> tuple[ScannedPart, list[str]]:
        """What the files gave that are as they were, and those that have to be analysed."""
        self._paths = list(paths)
        try:
            stored = _stored(self.file)
            self._entries, self._links, before = (dict(stored[name]) for name in ("entries", "links", "digests"))
        except _NOT_KEPT:
            self._entries, self._links, before = {}, {}, {}
        readers = defaultdict[str, list[str]](list)
        now = self._digested(readers)
        changed = [path for path, digest in now.items() if before.get(path) != digest]
        anew = _reached(changed, lambda path: readers[path])
        self._digests = before | now
        if not self._entries.keys() <= set(self._paths):  # the others have seen another content, and are not looked at
            self._digests |= dict.fromkeys((path for path in changed if path in before), "")
        known, asked = ScannedPart(), []
        for path in self._paths:
            part = _part(path, self._entries.get(path)) if path not in anew else None
            if part is None:
                asked.append(path)
            else:
                known.add(part)
        return known, asked

    def keep(self, part: ScannedPart) -> None:
        """Add what was analysed anew."""
        fresh: dict[str, dict[str, Any]] = {path: {} for path in self._paths}
        for name in _LISTS:
            for path in getattr(part, name):
                fresh[path][name] = True
        for finding in part.findings:
            fresh[finding.path].setdefault("findings", []).append(asdict(finding))
        for error in part.errors:
            fresh[error.path].setdefault("errors", []).append(asdict(error))
        links = [(path, target) for path, target in sorted(part.links) if target not in self.files.imported(path)]
        for importer, target in links:  # they count from now on, for all who import the file that has one
            self._links.setdefault(importer, []).append(target)
        digests = (self._digested() if links else {}) | self._digests
        _store(self.file, {"entries": self._entries | fresh, "digests": digests, "links": self._links})

    def _digested(self, readers: defaultdict[str, list[str]] | None = None) -> dict[str, str]:
        """All files that the results are made from, each with a digest of it and of what it is judged for."""
        digests = {}
        for path in _reached(self._paths, lambda path: _depends(path, self.files, self._links), readers):
            digest = hashlib.blake2b(_bytes(path, self.files.data), digest_size=16)
            digest.update(repr((path, self.versions(path))).encode(errors="surrogateescape"))
            digests[path] = digest.hexdigest()
        return digests


class LastSearch:
    """What the files of a search gave, for the next one, in which some of them have other contents."""

    def __init__(self) -> None:
        self._part: ScannedPart | None = None
        self._before: Files | None = None

    def but(self, changed: Collection[str], files: Files, _: object) -> LastSearch:
        """The same, where some files changed."""
        self._changed, self._files, self._before = changed, files, self._before or files
        return self

    def recall(self, paths: list[str]) -> tuple[ScannedPart, list[str]]:
        """What the files gave that read nothing that changed, and those that have to be analysed.

        A name is followed into a file, which the links tell; what the text is asked first is compared.
        """
        old, new, changed = self._before, self._files, self._changed
        if self._part is None or old is None or not all(map(old.exists, changed)):
            return ScannedPart(), paths
        readers = defaultdict[str, list[str]](list)
        tests = ((path, one) for path in filter(is_test, paths) for one in _depends(path, old, {}) if is_test(one))
        for reader, target in (*self._part.links, *tests):
            readers[target].append(reader)
        every = dict.fromkeys((*changed, *paths, *readers))
        before = {path: (old.reaches_megatron(path), old.related(path)) for path in every}
        new.take_over(old, changed)
        moved = {path for path in changed if old.installers(path) != new.installers(path)}
        moved |= {path for path in before if path.endswith("__init__.py") and not moved.isdisjoint(new.imported(path))}
        other = (path for path, told in before.items() if told != (new.reaches_megatron(path), new.related(path)))
        asking = (path for path in before if not moved.isdisjoint(new.imported(path)))
        anew = _reached((*changed, *other, *asking), lambda path: readers[path])
        return self._part.without(anew), [path for path in paths if path in anew]

    def keep(self, part: ScannedPart) -> None:
        """Keep what a first search gave."""
        self._part = self._part or part.without(())


def _reached(
    starts: Iterable[str], step: Callable[[str], Iterable[str]], back: defaultdict[str, list[str]] | None = None
) -> dict[str, None]:
    """All that some paths lead to, themselves included; `back` takes where each was come to from."""
    reached = dict.fromkeys(starts)
    waiting = list(reached)
    for path in waiting:
        for target in step(path):
            if back is not None:
                back[target].append(path)
            if target not in reached:
                reached[target] = None
                waiting.append(target)
    return reached


def _depends(path: str, files: Files, links: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """The files that a file reads, as far as one step goes."""
    yield from files.imported(path)
    yield from links.get(path, ())
    folder = path if is_test(path) else ""
    while folder:
        folder = posixpath.dirname(folder)
        if files.exists(above := posixpath.join(folder, "conftest.py")):
            yield above


def _part(path: str, entry: Any) -> ScannedPart | None:
    """What a file gave; None where that is not known, or cannot be read."""
    part = ScannedPart(1)
    try:
        part.findings = [finding_of(row) for row in entry.get("findings", ())]
        part.errors = [FileError(**row) for row in entry.get("errors", ())]
    except _NOT_KEPT:
        return None
    for name in _LISTS:
        setattr(part, name, [path] if name in entry else [])
    return part
