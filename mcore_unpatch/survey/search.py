"""Everything that is found in some files: patches, what codemods know, patch files; without what comments suppress."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mcore_unpatch import rewrites
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.gate import suppress
from mcore_unpatch.megatron.megatrons import Megatrons
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.records import dataclass, field
from mcore_unpatch.repository.discover import is_excluded, is_patch_file
from mcore_unpatch.sources.parsing import (
    Reader,
    TooLarge,
    Unreadable,
    check,
    decode,
    with_plain_line_ends,
)
from mcore_unpatch.stacks.sources import MegatronSource
from mcore_unpatch.stacks.stacks import Stacks
from mcore_unpatch.survey import patch_files, remembered
from mcore_unpatch.survey.core import Core
from mcore_unpatch.survey.own_models import own_models
from mcore_unpatch.survey.told import Told

if TYPE_CHECKING:
    from mcore_unpatch.editing.edits import Repository

Progress = Callable[[int, int], None]
# Up to this many bytes every file's syntax is checked; beyond, only of files that say Megatron.
CHECKED_THROUGHOUT = 2_000_000
_IMPORT = re.compile(rb"^[ \t]*+(?:from|import)[ \t]++([\w.]++(?:[ \t]*+,[ \t]*+[\w.]++)*+)", re.MULTILINE)
_LARGEST = 4 * 1024 * 1024  # of a file that is read


@dataclass
class Part:
    """What some files gave; `marked` may carry an ignore comment, `saying` have a word that codemods ask for."""

    findings: list[Finding] = field(default_factory=list)
    errors: list[FileError] = field(default_factory=list)
    marked: list[str] = field(default_factory=list)
    saying: list[str] = field(default_factory=list)


@dataclass
class Search:
    """How a repository is looked at; `exists` and `read` take paths relative to its top."""

    every: Sequence[str]  # the Python files of the repository, those that are not asked about too
    read: Reader
    exists: Callable[[str], bool]
    versions: Callable[[str], tuple[Version, ...]]  # the releases a file is judged for
    megatrons: Megatrons
    source: MegatronSource | None = None  # a Megatron source, to which patch files may apply or not
    wanted: Callable[[str], bool] = lambda _: True  # rules that are: codemods of no other are asked
    silenced: list[Finding] = field(default_factory=list)  # takes a finding for each that a comment suppresses
    downstreams: Callable[[], Repository] | None = None  # the repository with what is known of them, if that is asked
    diffs: Sequence[str] = ()  # the patch files of the repository
    shared: Core | None = None  # of the same contents, where another look has built it

    def __call__(
        self, python: Sequence[str], patches: Iterable[str] = (), progress: Progress | None = None
    ) -> tuple[list[Finding], list[FileError]]:
        """The findings in some files, and those that could not be analysed."""
        part = Part()
        thorough = sum(len(self._texts.get(path, b"")) for path in python) <= CHECKED_THROUGHOUT
        words = rewrites.words(self.wanted)
        for number, path in enumerate(python):
            self._look(path, part, thorough, words)
            if progress is not None:
                progress(number, len(python))
        asked = set(python).difference(error.path for error in part.errors)
        told = Told(self.core, self.versions)
        part.findings += (told.finding(patch) for patch in self.core.patches if patch.path in asked)
        part.findings += own_models(self.core, self.versions, asked)
        part.errors += (FileError(path, why) for path, why in self.core.index.unreadable.items() if path in asked)
        rewrites.complete(part, self, self.wanted, self.downstreams)
        files = list(patches)
        for path in files:
            self._patch_file(path, files, part)
        return suppress.settle(part.findings, part.marked, self.read, self.silenced), part.errors

    @cached_property
    def core(self) -> Core:
        """The patches of the repository, and what judges them."""
        return self.shared or Core(self._texts, self.megatrons, self._readable(self.diffs))

    @cached_property
    def _texts(self) -> Mapping[str, bytes]:
        return self._readable(self.every)

    def _readable(self, paths: Sequence[str]) -> dict[str, bytes]:
        """The bytes of the files that can be read."""
        found = {}
        for path in paths:
            try:
                data = self.read(path)
            except (OSError, Unreadable):
                continue
            if len(data) <= _LARGEST and b"\0" not in data:
                found[path] = with_plain_line_ends(data)
        return found

    def _look(self, path: str, part: Part, thorough: bool, words: Sequence[bytes]) -> None:
        """What the bytes of a file tell: whether it can be read, comments to it, words that codemods ask for."""
        try:
            data = self._texts[path] if path in self._texts else self.read(path)
            says = b"egatron" in data or b"mcore" in data
            if len(data) > _LARGEST:
                raise TooLarge(len(data), says or self._imports_own(path, data))
            if suppress.IGNORE_MARK in data:
                part.marked.append(path)
            if any(word in data for word in words):
                part.saying.append(path)
            if thorough or says:
                check(data)
            elif b"\0" in data or not data.isascii() or b"coding" in b"".join(data.split(b"\n", 2)[:2]):
                decode(data)
        except FileNotFoundError:
            return  # listed by git, deleted on disk
        except TooLarge as error:
            if error.matters:
                part.errors.append(FileError(path, str(error)))
        except (Unreadable, OSError) as error:
            part.errors.append(FileError.of(path, error))
        except (RecursionError, MemoryError):
            part.errors.append(FileError(path, "nested too deeply to be analysed"))

    def _imports_own(self, path: str, data: bytes) -> bool:
        """Whether a file that is not parsed imports another of the repository."""
        words = {word.strip() for found in _IMPORT.findall(data) for word in found.decode().split(",")}
        firsts = {word.partition(".")[0] for word in words} - sys.stdlib_module_names
        own = {part.removesuffix(".py") for file in self.every if file != path for part in file.split("/")}
        return "" in firsts or not own.isdisjoint(firsts)  # a relative import has no first name

    def _patch_file(self, path: str, files: list[str], part: Part) -> None:
        try:
            series = f"{path.rpartition('/')[0]}/series".lstrip("/")
            listed = self.read(series) if self.source and self.exists(series) else None
            first = patch_files.applied_before(path, files, listed) if self.source else []
            before = [self.read(earlier) for earlier in first]
            part.findings += patch_files.findings_in(path, self.read(path), self.source, before)
        except FileNotFoundError:
            return  # listed by git, deleted on disk
        except (Unreadable, OSError) as error:
            part.errors.append(FileError.of(path, error))


def findings_at(
    top: Path,
    revisions: Iterable[str],
    stacks: Stacks,
    exclude: tuple[str, ...] = (),
    base: Path | None = None,
    cache: bool = False,
) -> tuple[list[Finding], list[Finding]]:
    """The findings of commits, read from git without a checkout, and one for each that a comment suppresses.

    What two of them have counts once. `exclude` is relative to `base`, as on disk.
    """
    from mcore_unpatch.gate import compare

    every: tuple[list[Finding], list[Finding]] = ([], [])
    for revision in revisions:
        for known, more in zip(every, _findings_at(top, revision, stacks, exclude, base, cache), strict=True):
            known += compare.new_findings(more, known, {}, stacks.versions)
    return every


def _findings_at(
    top: Path, revision: str, stacks: Stacks, exclude: tuple[str, ...], base: Path | None, cache: bool
) -> tuple[list[Finding], list[Finding]]:
    from mcore_unpatch.gate import compare

    every = compare.blobs_at(top, revision)
    blobs = {path: name for path, name in every.items() if not is_excluded(top / path, base or top, exclude)}
    if (place := remembered.folder(top) if cache else None) is not None:
        folders = sorted({path.rpartition("/")[0] for path in blobs})
        judged = {folder: stacks.versions(f"{folder}/x.py".removeprefix("/")) for folder in folders}
        name = remembered.key((judged, blobs), [], lambda _: b"")
        if (known := remembered.recall(place, name)) is not None:
            return known.findings, known.silenced
    contents = compare.contents_of(top, blobs.values())

    def read(path: str) -> bytes:
        return contents[blobs[path]]

    python = [path for path in blobs if not is_patch_file(path)]
    names = {path.rsplit("/", depth)[0] for path in blobs for depth in range(path.count("/") + 1)}
    diffs = list(filter(is_patch_file, blobs))
    search = Search(python, read, names.__contains__, stacks.versions, Megatrons(), diffs=diffs)
    findings, errors = search(python, diffs)
    if place is not None:
        remembered.keep(place, name, remembered.SearchResult(findings, errors, search.silenced))
    return findings, search.silenced
