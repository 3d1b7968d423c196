"""One look at a repository: which files, what is found in them, and what they are judged for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from mcore_unpatch import rewrites
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings import verdicts
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.judge.handed_over import HandedOver
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron.layout import HOOK_SINCE
from mcore_unpatch.megatron.versions import Version, parse_version, show
from mcore_unpatch.records import field, record, replace
from mcore_unpatch.repository import git, reading
from mcore_unpatch.repository.discover import (
    Discovery,
    discover,
    others,
    settings,
    whole_of,
)
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.parsed import Parsed
from mcore_unpatch.scanner.sources.work_tree import Overlay, WorkTree
from mcore_unpatch.stacks.revision import Judged, Revision
from mcore_unpatch.stacks.sources import MegatronSource
from mcore_unpatch.stacks.stacks import Stacks
from mcore_unpatch.survey import guards, overriding, parallel, patch_files, readers, remembered
from mcore_unpatch.survey.floor import Floors
from mcore_unpatch.survey.parallel import ScannedPart
from mcore_unpatch.survey.search import Progress, Search, findings_at

if TYPE_CHECKING:
    from mcore_unpatch.editing.edits import Repository
    from mcore_unpatch.gate.switches import Gate
    from mcore_unpatch.pins import Pin

Found = tuple[list[Finding], list[FileError]]
_NO_LINKS: frozenset[str] = frozenset()


@record
class PinnedOn:
    """A lock file, and the releases it is held to, the newest first."""

    file: Path
    releases: tuple[Model, ...]
    required: bool = False  # a patch without a pin is a finding of its own


@record
class ScanOptions:
    """What the command line and the configuration ask for."""

    selection: Selection = field(default_factory=Selection)
    exclude: tuple[str, ...] = ()
    exclude_base: Path | None = None
    target: Version | None = None  # the one release to judge for
    megatron: tuple[Revision, ...] = ()  # the stacks to judge for, and who named them
    named_by: str = "named by --target-mcore"
    stacks: tuple[str, ...] = ()  # of those that are found, only these
    jobs: int = 0
    base: str | None = None
    baseline: Path | None = None
    possible: bool = False  # also what is told by the name of a method alone
    fixes: bool = False  # say of each finding whether `migrate` would take it away
    lock: PinnedOn | None = None  # accept what is pinned, and hold the pins to a release
    source: MegatronSource | None = None  # a Megatron source: patch files apply to it or not
    gate: Gate | None = None  # tell what the change switches off of the gate
    cache: bool = False  # remember what was found, and by what contents

    def reports(self, finding: Finding) -> bool:
        """Whether a finding is certain enough."""
        return self.possible or finding.confidence != "possible"


def _cores() -> int:
    """The cores that this process may use: a container or a batch system may give it fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Survey:
    """One look at a repository, which everything that a command says or does is made from.

    Files are discovered, read and parsed once. Paths are relative to `found.top`. `found` are the files that were
    named: `findings` and `errors` are theirs; `whole` are those of the repository around them.
    """

    def __init__(self, paths: list[Path], options: ScanOptions, progress: Progress | None = None) -> None:
        self.paths, self.options = paths or [Path()], options
        self.found = discover(self.paths, options.exclude, options.exclude_base)
        given = options.megatron or ((Revision(show(options.target), (options.target,)),) if options.target else ())
        self.stacks = Stacks(self.found.top, given, options.named_by, options.stacks)
        self.files, self.parsed = WorkTree(self.found.top), Parsed()
        self.notes = list(self.found.notes)
        self._parts: list[ScannedPart] = []  # what each search gave
        self._silenced: list[Finding] = []  # a finding for each that a comment suppresses
        self.known: list[Finding] = []  # those that the base has, and no lock speaks for
        self.accepted: dict[str, dict[str, int]] | None = None  # by what the change writes into its baseline
        look = self._findings if options.base is None else self._new_findings
        seen, self.errors = look(progress)
        self.done = [finding for finding in seen if finding.verdict == verdicts.DONE]  # side by side already
        seen = [finding for finding in seen if finding.verdict != verdicts.DONE]
        self.findings = [finding for finding in seen if options.reports(finding)]
        self.possible = [finding for finding in seen if not options.reports(finding)]  # told of, and not reported

    @cached_property
    def whole(self) -> Discovery:
        """All files of the repository: what is excluded is not reported or edited, but it is part of it."""
        return whole_of(self.found, self.paths, self.options.exclude)

    @cached_property
    def elsewhere(self) -> list[Finding]:
        """The findings in files that were not named."""
        return self._search(others(self.whole, self.found))[0]

    @property
    def version(self) -> Version:
        """The one release to migrate for: of the newest that each project with findings takes, the oldest."""
        newest = (self.stacks.versions(finding.path)[-1] for finding in self.findings)
        return min(newest, default=self.stacks.versions("")[-1])

    @property
    def judged(self) -> list[Judged]:
        """What the files with findings are judged for; what two say in the same words is said once."""
        found = {str(judged := self.stacks.of("")): judged} if not self.findings else {}
        for path in dict.fromkeys(finding.path for finding in self.findings):
            judged = found.setdefault(str(self.stacks.of(path)), self.stacks.of(path))
            found[str(judged)] = replace(judged, files=(*judged.files, self.found.shown(path)))
        return list(found.values())

    @property
    def _jobs(self) -> int:
        """Processes to run: one where others would not know the source that the user named."""
        apart = self.options.source is not None and parallel.START != "fork"
        return 1 if apart else self.options.jobs or _cores()

    def repository(self, editable: frozenset[str], contents: Mapping[str, bytes] | None = None) -> Repository:
        """The whole repository as codemods see it, with other bytes in some files."""
        from mcore_unpatch.editing.edits import Repository

        read = Overlay(self.files.read, contents or {}).read
        return Repository(self.whole.own, self.files.exists, read, editable, self.parsed)

    @cache  # noqa: B019 - a survey lives as long as its command
    def downstreams(self, editable: frozenset[str]) -> Repository:
        """The repository with what it has of the downstreams that the codemods know, which waits for no finding."""
        rewrites.downstreams(repository := self.repository(editable))
        return repository

    def floor(self, path: str) -> Version:
        """The oldest known release on which a file can be imported."""
        return parse_version(self._floors.releases(path)[0])

    @cached_property
    def _floors(self) -> Floors:
        return Floors(self.project())

    def before_the_hook(self, path: str) -> str:
        """Why a file may not have what needs the hook; nothing where it cannot be imported without it."""
        why = self.stacks.before_the_hook(path)
        return "" if why and self.floor(path) >= HOOK_SINCE else why

    def _ahead(self) -> None:
        """What is needed whatever the files give, while other processes look at them."""
        if self.options.fixes:
            self.downstreams(self.found.editable).last.clear()

    def rescan(self, contents: Mapping[str, bytes]) -> Found:
        """What the scanner would say if these were the contents of some files; the others are not read again."""
        return self._search(self.found, contents=contents)

    def _search(
        self, discovery: Discovery, progress: Progress | None = None, contents: Mapping[str, bytes] | None = None
    ) -> Found:
        """Everything of the selected rules, in Python and patch files; what is remembered is not looked for again."""
        options, place = self.options, self._memory if contents is None else None
        name = self._remembered_as(discovery) if place is not None else ""
        if place is not None and (known := remembered.recall(place, name)) is not None:
            self._silenced += known.silenced
            return known.findings, known.errors
        silenced, first = list[Finding](), discovery is self.found and contents is None
        parts: list[ScannedPart] = self._parts if first else []
        search = Search(
            Overlay(self.files.read, contents or {}).read,
            self.files.exists,
            self.stacks.versions,
            options.selection.wants_mocks,
            self._jobs,
            self.files.size,
            self.parsed,
            options.source,
            _Listed(self.whole, self.files, contents or ()).__contains__,
            options.selection.__contains__,
            silenced,
            parts,
            self._parts[0] if self._parts and contents and discovery is self.found else None,
            contents or (),
            self.brought,
            self._ahead if first else None,
            partial(self.downstreams, self.found.editable) if first and options.fixes else None,
        )
        findings, errors = search(discovery.own, discovery.patches, progress)
        chosen = [finding for finding in findings if finding.rule in options.selection]
        chosen = guards.mark(chosen, Project(self.files.exists, search.read, self.parsed, brought=self.brought))
        chosen = overriding.mark(chosen, lambda: self._classes, self.stacks.of)
        assessed = self.settled(readers.mark(chosen, self.stacks.versions, self.whole.own, self.files.read))
        findings = sorted(assessed, key=lambda finding: finding.sort_key)
        self._silenced += silenced
        if place is not None:
            remembered.keep(place, name, remembered.SearchResult(findings, errors + discovery.errors, silenced))
        return findings, errors + discovery.errors

    @cached_property
    def brought(self) -> dict[str, frozenset[str]]:
        """What the patch files of the repository add to what Megatron takes."""
        return patch_files.brought(self.whole.patches, self.files.read)

    @cached_property
    def _classes(self) -> HandedOver:
        """The classes of the repository."""
        project = self.project()
        return HandedOver(self.whole.own, project.text, lambda path: self.parsed.tree(path, project.data(path)))

    def project(self) -> Project:
        """The files of the repository, to be parsed on demand."""
        return Project(self.files.exists, self.files.read, self.parsed, brought=self.brought)

    def completed(self, asked: object, complete: Callable[[], list[Finding]]) -> list[Finding]:
        """The findings with more that is known of them, remembered with what was asked."""
        if (place := self._memory) is None:
            return complete()
        name = remembered.key((self._remembered_as(self.found), asked, self.findings), (), self.files.read)
        if (known := remembered.recall(place, name)) is not None:
            return known.findings
        findings = complete()
        remembered.keep(place, name, remembered.SearchResult(findings))
        return findings

    @cached_property
    def _memory(self) -> Path | None:
        """Where results are remembered, if they are."""
        wanted = self.options.cache and self.options.source is None
        return remembered.folder(self.found.top) if wanted else None

    def _remembered_as(self, discovery: Discovery) -> str:
        """All that the findings of some files depend on: every file of the repository, for who may read a name."""
        asked = (str(self.found.top), self.options.selection, self.stacks.all)
        there = (discovery.errors, discovery.python, discovery.patches)
        return remembered.key((self._contents, asked, there), (), self.files.read)

    @cached_property
    def _contents(self) -> str:
        """A digest of every file of the repository."""
        return remembered.key((), self.everything, self.files.read)

    def settled(self, findings: list[Finding], again: bool = False) -> list[Finding]:
        """The findings with what becomes of each, by what else is known of it; `again` with their fixes."""
        judged = {finding.path: self.stacks.of(finding.path) for finding in findings}
        guessed = {path for path in judged if not self.stacks.pinned(path) or self.stacks.open_for(path)}
        settled = verdicts.settled(findings, judged, guessed)
        settled = guards.settled(settled, self.stacks.in_use, self.stacks.requires_compat)
        return [verdicts.on_stacks(finding, judged[finding.path].stacks, again) for finding in settled]

    def naming(self, word: str) -> list[str]:
        """All files below the top that say a word, prose and what git does not track included; the top without git."""
        try:
            found = git.run(self.found.top, "grep", "-IlzwF", "--untracked", "-e", word, codes=(0, 1))
        except git.GitError:
            return self.everything
        return [os.fsdecode(name) for name in found.split(b"\0") if name]

    @property
    def everything(self) -> list[str]:
        """The files of the repository, but for prose."""
        return [*self.whole.python, *self.whole.patches, *self._settings]

    @cached_property
    def _settings(self) -> list[str]:
        """The files of the repository that are neither Python nor patches nor prose."""
        return settings(self.found.top, self.stacks.files)

    def _findings(self, progress: Progress | None) -> Found:
        """The findings that no lock speaks for."""
        findings, errors = self._search(self.found, progress)
        return self._unpinned(findings), errors

    def _unpinned(self, findings: list[Finding], before: Mapping[str, Pin] = MappingProxyType({})) -> list[Finding]:
        """What no lock speaks for; the pins of `before` are of patches that were there, and of no new one."""
        lock = self.options.lock
        if lock is None:
            return findings
        from mcore_unpatch import pins
        from mcore_unpatch.gate import pinned

        whole = any(path.resolve() == self.found.top for path in self.paths)
        known, text = pins.load(lock.file), reading.read(lock.file).decode()
        told = (findings, known, lock.file.name, text, lock.releases)
        left, notes = pinned.settle(*told, whole=whole, required=lock.required, source=self.options.source)
        self.notes += notes if self.options.base is None else []
        kept = set(left)
        # What the change itself pins is told as such.
        old = {name for name, pin in before.items() if name in known.pins and not known.pins[name].speaks_for_more(pin)}
        return [*left, *(finding for finding in findings if finding.target in old and finding not in kept)]

    def _new_findings(self, progress: Progress | None) -> Found:
        """What is new in the files asked for. Both sides are seen in full, so that a copy is not taken for a move."""
        from mcore_unpatch.gate import baseline, compare

        asked, options = self.found, self.options
        assert options.base is not None
        revisions = options.gate.revisions if options.gate else compare.merge_bases(asked.top, options.base)
        base = options.exclude_base or asked.root
        everything = asked
        if [path.resolve() for path in self.paths] != [asked.top]:
            everything = discover([asked.top], options.exclude, base)
            everything.python = sorted({*everything.python, *asked.python})
            everything.patches = sorted({*everything.patches, *asked.patches})
            everything.errors = asked.errors
        here, errors = self._search(everything, progress)
        now = here
        if git.commit_of(asked.top, "HEAD") in revisions:
            told = f"The base {options.base!r} is the commit that is checked out: only what is not committed is new."
            self.notes.append(told)
        mocks = options.selection.wants_mocks
        before, silent_before = findings_at(
            asked.top, revisions, self.stacks, mocks, options.exclude, base, options.cache
        )
        renamed = compare.renames(asked.top, revisions)
        carried = set(everything.python).difference(everything.own)
        if touched := [path for path in compare.changed(asked.top, revisions) if path in carried]:
            told = f"{touched[0]}{f' and {len(touched) - 1} more' if touched[1:] else ''}"
            self.notes.append(f"Megatron's own source changed, which is not read for patches: {told}.")
        unpinned = self._unpinned(now, compare.pinned_at(asked.top, revisions))
        new = compare.new_findings(unpinned, before, renamed, self.stacks.versions)
        fresh_ones = {finding.sort_key for finding in new}
        there = [finding for finding in unpinned if finding.sort_key not in fresh_ones]
        self.known = [finding for finding in there if finding.sort_key not in fresh_ones and options.reports(finding)]
        if options.baseline is not None and options.baseline.resolve().is_relative_to(asked.top):
            self.accepted = baseline.added(options.baseline, asked.top, revisions, renamed, before)
        if options.gate is not None:
            new += compare.new_findings(self._silenced, silent_before, renamed)
            fresh = compare.new_findings(now, before, renamed, self.stacks.versions)
            new += options.gate.switched_off(everything.python, renamed, before, here, fresh)
        elsewhere = {*everything.python, *everything.patches}.difference(asked.python, asked.patches)
        return [one for one in new if one.path not in elsewhere], [one for one in errors if one.path not in elsewhere]


class _Listed:
    """Whether a project has a file or a folder, by the files that were discovered."""

    def __init__(self, whole: Discovery, files: WorkTree, others: Iterable[str]) -> None:
        self._top, self._exists = whole.top, files.exists
        paths = [*whole.python, *whole.patches, *others]
        folders = {path.rsplit("/", depth)[0] for path in paths for depth in range(1, path.count("/") + 1)}
        self._names = folders.union(paths)
        self._links = cache(self._find_links)

    def __contains__(self, path: str) -> bool:
        # A link to a file that is read under its own name is not listed; what an import finds through it is that file.
        if path in self._names:
            return True
        folder, _, name = path.rpartition("/")
        return name in self._links(folder) and self._exists(path)

    def _find_links(self, folder: str) -> frozenset[str]:
        try:
            with os.scandir(f"{self._top}/{folder}") as entries:
                return frozenset(entry.name for entry in entries if entry.is_symlink()) or _NO_LINKS
        except OSError:
            return _NO_LINKS
