"""Analyse many files: in this process, or split over several."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from threading import Thread

from mcore_unpatch.children import can_be_safe, safe_path
from mcore_unpatch.errors import FileError, UsageError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.gate.suppress import IGNORE_MARK
from mcore_unpatch.megatron import api
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.records import dataclass, field, record, replace
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.conditions import call_sites
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources import prefilter
from mcore_unpatch.scanner.sources.files import Reader, TextFacts
from mcore_unpatch.scanner.sources.parsed import Parsed
from mcore_unpatch.scanner.sources.parsing import TooLarge, Unreadable, check, decode
from mcore_unpatch.survey import detect

# Below this many bytes a second process costs more than it saves.
_WORTH_A_PROCESS = 1_500_000
_SMALLEST_SHARE = 20_000
# Up to this many bytes every file's syntax is checked; beyond, only of files that may patch Megatron.
CHECKED_THROUGHOUT = 2_000_000

# How other processes are started.
START = "fork" if sys.platform == "linux" else "spawn"


@record
class Task:
    """What every part of one analysis shares; `exists` and `read` take paths relative to the project's root."""

    read: Reader
    exists: Callable[[str], bool]
    versions: Callable[[str], tuple[Version, ...]]  # the releases a file is judged for
    mocks: bool
    thorough: bool = True  # also tell of broken files that have nothing to do with Megatron
    words: tuple[bytes, ...] = ()  # files that say one of these are named
    texts: dict[str, TextFacts] = field(default_factory=dict)  # of files that others import, read once
    brought: Mapping[str, frozenset[str]] = field(default_factory=dict)  # what patch files add to Megatron
    unfiltered: bool = False  # parse every file: to see that what the text is asked first leaves nothing out

    def project(self, parsed: Parsed | None = None) -> Project:
        """The files, to be parsed on demand; those in `parsed` were before."""
        return Project(self.exists, self.read, parsed, self.texts, self.brought)


@dataclass(slots=True)
class ScannedPart:
    """What some files gave; `marked` may carry an ignore comment, `saying` have a word that was asked for."""

    files: int = 0
    findings: list[Finding] = field(default_factory=list)
    errors: list[FileError] = field(default_factory=list)
    marked: list[str] = field(default_factory=list)
    saying: list[str] = field(default_factory=list)
    testing: list[str] = field(default_factory=list)  # files that may ask which release they run on
    links: set[tuple[str, str]] = field(default_factory=set)  # a file, and one that a name of it was followed into

    def add(self, other: ScannedPart) -> None:
        """What other files gave, behind what is here."""
        for name in ["findings", "errors", "marked", "saying", "testing"]:
            getattr(self, name).extend(getattr(other, name))
        self.files += other.files
        self.links |= other.links

    def without(self, paths: Container[str]) -> ScannedPart:
        """What all files but some gave."""
        kept = replace(self)
        for name in ["findings", "errors", "marked", "saying", "testing"]:
            setattr(kept, name, [item for item in getattr(self, name) if getattr(item, "path", item) not in paths])
        return kept


def _analyse(paths: list[str], task: Task, project: Project) -> ScannedPart:
    part = ScannedPart(len(paths))
    for path in paths:
        try:
            project.begin()
            data = project.data(path)
            if IGNORE_MARK in data:
                part.marked.append(path)
            if call_sites.tests_a_release(data) and project.related(path):
                part.testing.append(path)
            if any(word in data for word in task.words):
                part.saying.append(path)
            if task.thorough:
                check(data)
            mocks = task.mocks or IGNORE_MARK in data  # a comment may be for one of them
            if task.unfiltered or may_patch(project, path, mocks):
                findings = detect.findings_in(project.resolver(path), task.versions, mocks)
                part.findings += findings
                if findings:
                    project.expect(path)
        except FileNotFoundError:
            continue  # listed by git, deleted on disk
        except TooLarge as error:
            if error.matters or project.reaches_megatron(path):
                part.errors.append(FileError(path, str(error)))
        except (Unreadable, OSError) as error:
            part.errors.append(FileError.of(path, error))
        except (RecursionError, MemoryError):
            part.errors.append(FileError(path, "nested too deeply to be analysed"))
    part.links, project.links = project.links, set()
    return part


def may_patch(project: Project, path: str, mocks: bool) -> bool:
    """Whether a file has to be parsed; raises `Unreadable` for one that is no text."""
    data = project.data(path)
    if b"\0" in data or not data.isascii() or b"coding" in data[:400]:
        decode(data)
    text = prefilter.plain(data)
    mentions = prefilter.mentions_megatron(path, text)
    if not mentions and not project.reaches_megatron(path):
        return False
    return prefilter.may_install(data, mocks or not is_test(path)) or (
        mentions and (prefilter.may_take_hook(text) or prefilter.calls_one_of(text, project.installers_for(path)))
    )


def analyse(
    paths: list[str],
    sizes: list[int],
    task: Task,
    jobs: int,
    parsed: Parsed,
    ahead: Callable[[], None] | None = None,
    start: str = START,
) -> Iterator[ScannedPart]:
    """Analyse files over several processes, part by part as they come in; one job stays in this process.

    `ahead` is called here as soon as others work: what the caller needs anyway is done meanwhile.
    """
    total = sum(sizes)
    task = replace(task, thorough=task.thorough and total <= CHECKED_THROUGHOUT)
    workers = min(jobs, 1 + total // _WORTH_A_PROCESS) if start == "fork" or can_be_safe() else 1
    # Small shares: whoever is done takes the next one, and only the last ones are waited for.
    shares = _shares(paths, sizes, max(_SMALLEST_SHARE, total // (workers * 32)))
    with no_collection():
        if workers == 1:
            project = task.project(parsed)
            for share in shares:
                yield _analyse(share, task, project)
            project.close()
        else:
            yield from _share_out(shares, task, workers - 1, parsed, ahead, start)


def _share_out(
    shares: list[list[str]], task: Task, helpers: int, parsed: Parsed, ahead: Callable[[], None] | None, start: str
) -> Iterator[ScannedPart]:
    """Share the work with other processes: they take shares from the front, and this one from the end."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    api.attribute_names()  # before the fork, so that the tables are read once
    task.versions("")
    with safe_path():
        pool = ProcessPoolExecutor(helpers, multiprocessing.get_context(start), _begin, (task,))
        waiting = [pool.submit(_share, share) for share in shares]
    try:
        if ahead is not None:
            ahead()
        project = task.project(parsed)
        for share, result in zip(reversed(shares), reversed(waiting), strict=True):
            if result.cancel():  # nobody has begun it
                yield _analyse(share, task, project)
        project.close()
        for done in as_completed(one for one in waiting if not one.cancelled()):
            yield done.result()
    except BrokenProcessPool:
        raise UsageError("a worker process died, perhaps out of memory; try --jobs 1") from None
    finally:
        pool.shutdown(cancel_futures=True)


_own: tuple[Task, Project] | None = None  # of a process that works for another one


def _begin(task: Task) -> None:
    """In a new process: what its shares have in common, and its end when the other one was killed."""
    global _own
    gc.disable()
    _own = task, task.project()
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import parent_process

    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


def _share(share: list[str]) -> ScannedPart:
    assert _own is not None
    return _analyse(share, *_own)


def _shares(paths: list[str], sizes: list[int], wanted: int) -> list[list[str]]:
    """Runs of files of about so many bytes: neighbours import each other, and each process parses for itself."""
    shares: list[list[str]] = [[]]
    weight = 0
    for path, size in zip(paths, sizes, strict=True):
        if weight >= wanted:
            shares.append([])
            weight = 0
        shares[-1].append(path)
        weight += size
    return shares


@contextmanager
def no_collection() -> Iterator[None]:
    """Syntax trees are many small objects without a cycle: to look for garbage among them takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()  # all that was made is old now: else the next allocation would look through all of it
            gc.unfreeze()
            gc.enable()
