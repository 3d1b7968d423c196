"""Everything that is found in some files: analysed one by one, seen together, without what comments suppress."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mcore_unpatch import rewrites
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.gate import suppress
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.records import field, record
from mcore_unpatch.repository.discover import is_excluded, is_patch_file
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.conditions import call_sites
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.files import Reader
from mcore_unpatch.scanner.sources.parsed import Parsed
from mcore_unpatch.scanner.sources.parsing import Unreadable
from mcore_unpatch.stacks.sources import MegatronSource
from mcore_unpatch.stacks.stacks import Stacks
from mcore_unpatch.survey import patch_files, remembered
from mcore_unpatch.survey.parallel import CHECKED_THROUGHOUT, ScannedPart, Task, analyse, no_collection

if TYPE_CHECKING:
    from mcore_unpatch.editing.edits import Repository

Progress = Callable[[int, int], None]


@record
class Search:
    """How files are looked at; `exists` and `read` take paths relative to the top of the project."""

    read: Reader
    exists: Callable[[str], bool]
    versions: Callable[[str], tuple[Version, ...]]  # the releases a file is judged for
    mocks: bool = False
    jobs: int = 1
    size: Callable[[str], int] = field(default=lambda _: 0)
    parsed: Parsed = field(default_factory=Parsed)
    source: MegatronSource | None = None  # a Megatron source, to which patch files may apply or not
    has: Callable[[str], bool] | None = None  # whether there is a module or a package, where not by `exists`
    wanted: Callable[[str], bool] = lambda _: True  # rules that are: codemods of no other are asked
    silenced: list[Finding] = field(default_factory=list)  # takes a finding for each that a comment suppresses
    parts: list[ScannedPart] = field(default_factory=list)  # takes what the files gave
    before: ScannedPart | None = None  # what they gave before, where only `changed` have other contents now
    changed: Collection[str] = ()
    brought: Mapping[str, frozenset[str]] = field(default_factory=dict)  # what patch files add to Megatron
    ahead: Callable[[], None] | None = None  # what this process has to do anyway, while others analyse
    downstreams: Callable[[], Repository] | None = None  # the repository with what is known of them, if that is asked

    def __call__(
        self, python: list[str], patches: Iterable[str] = (), progress: Progress | None = None
    ) -> tuple[list[Finding], list[FileError]]:
        """The findings, and the files that could not be analysed."""
        with no_collection():
            sizes = {path: self.size(path) for path in python}
            words, thorough = rewrites.words(self.wanted), sum(sizes.values()) <= CHECKED_THROUGHOUT
            has = self.has or self.exists
            task = Task(self.read, has, self.versions, self.mocks, thorough, words, brought=self.brought)
            anew = reading(self.changed, python, task.project(), self.before.links) if self.before else set(python)
            whole, asked = (
                self.before.without(anew) if self.before else ScannedPart(),
                [*filter(anew.__contains__, python)],
            )
            for part in analyse(asked, [sizes[path] for path in asked], task, self.jobs, self.parsed, self.ahead):
                whole.add(part)
                if progress:
                    progress(whole.files, len(python))
            self.parts.append(whole.without(()))
            versions = {finding.path: self.versions(finding.path) for finding in whole.findings}
            project = task.project(self.parsed)
            whole.findings = call_sites.narrowed(whole.findings, python, whole.testing, project, versions)
            project.close()
            rewrites.complete(whole, task, self.parsed, self.wanted, self.downstreams)
            files = list(patches)
            for path in files:
                self._patch_file(path, files, whole)
            return suppress.settle(whole.findings, whole.marked, self.read, self.silenced), whole.errors

    def _patch_file(self, path: str, files: list[str], whole: ScannedPart) -> None:
        try:
            series = f"{path.rpartition('/')[0]}/series".lstrip("/")
            listed = self.read(series) if self.source and self.exists(series) else None
            first = patch_files.applied_before(path, files, listed) if self.source else []
            before = [self.read(earlier) for earlier in first]
            whole.findings += patch_files.findings_in(path, self.read(path), self.source, before)
        except FileNotFoundError:
            return  # listed by git, deleted on disk
        except (Unreadable, OSError) as error:
            whole.errors.append(FileError.of(path, error))


def reading(
    changed: Iterable[str], python: Iterable[str], files: Project, links: Iterable[tuple[str, str]]
) -> set[str]:
    """Some files, and those that read one of them: by imports, directly or not, or by a name that was followed."""
    readers: dict[str, set[str]] = {}
    for path in python:
        above = (f"{folder}/conftest.py".lstrip("/") for folder in folders_above(path)) if is_test(path) else ()
        for target in (*files.imported(path), *above):
            readers.setdefault(target, set()).add(path)
    for path, target in links:
        readers.setdefault(target, set()).add(path)
    waiting = list(found := set(changed))
    for path in waiting:
        fresh = readers.get(path, set()) - found
        found |= fresh
        waiting += fresh
    return found


def folders_above(path: str) -> list[str]:
    """The folders around a file, the top as an empty name."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]


def findings_at(
    top: Path,
    revisions: Iterable[str],
    stacks: Stacks,
    mocks: bool,
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
        for known, more in zip(every, _findings_at(top, revision, stacks, mocks, exclude, base, cache), strict=True):
            known += compare.new_findings(more, known, {}, stacks.versions)
    return every


def _findings_at(
    top: Path, revision: str, stacks: Stacks, mocks: bool, exclude: tuple[str, ...], base: Path | None, cache: bool
) -> tuple[list[Finding], list[Finding]]:
    from mcore_unpatch.gate import compare

    every = compare.blobs_at(top, revision)
    blobs = {path: name for path, name in every.items() if not is_excluded(top / path, base or top, exclude)}
    if (place := remembered.folder(top) if cache else None) is not None:
        folders = sorted(set(map(posixpath.dirname, blobs)))
        judged = {folder: stacks.versions(f"{folder}/x.py".removeprefix("/")) for folder in folders}
        name = remembered.key((judged, mocks, blobs), [], lambda _: b"")
        if (known := remembered.recall(place, name)) is not None:
            return known.findings, known.silenced
    contents = compare.contents_of(top, blobs.values())

    def read(path: str) -> bytes:
        return contents[blobs[path]]

    python = [path for path in blobs if not is_patch_file(path)]
    names = {path.rsplit("/", depth)[0] for path in blobs for depth in range(path.count("/") + 1)}
    patches = list(filter(is_patch_file, blobs))
    brought = patch_files.brought(patches, read)
    search = Search(
        read, names.__contains__, stacks.versions, mocks, size=lambda path: len(read(path)), brought=brought
    )
    findings, errors = search(python, patches)
    if place is not None:
        remembered.keep(place, name, remembered.SearchResult(findings, errors, search.silenced))
    return findings, search.silenced
