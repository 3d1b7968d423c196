"""Analyse many files: in this process, or split over several."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

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

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

# Below this many bytes a second process costs more than it saves.
_WORTH_A_PROCESS = 1_500_000
_SMALLEST_SHARE = 20_000
_WIDTH = 4  # bytes of a share's number
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
    shares = _shares(paths, sizes, max(_SMALLEST_SHARE, total // (workers * 128)))
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
    """Share the work with other processes: each takes the next share when it is done with one, and so does this."""
    import multiprocessing
    from multiprocessing.connection import wait

    # Not a pool: this process takes part in the work, and the others do not wait until it has time for them.
    context: Any = multiprocessing.get_context(start)
    api.attribute_names()  # before the fork, so that the tables are read once
    # Each process has a run of neighbours, which import the same files, and at the end takes from those of others.
    count, workers = len(shares), helpers + 1
    runs = [_numbers(range(count * n // workers, count * (n + 1) // workers), context) for n in range(workers)]
    working: list[Connection] = []
    waiting: list[Connection] = []
    processes = []
    with safe_path():
        for own in range(1, workers):
            ours, theirs = context.Pipe(duplex=False)
            releases, told = context.Pipe(duplex=False)
            asked = replace(task, versions=_ToldLater(releases))
            taken = [*runs[own:], *runs[:own]]
            processes.append(context.Process(target=_work, args=(shares, asked, taken, theirs), daemon=True))
            processes[-1].start()
            theirs.close()  # else the end of a worker that died would never be seen
            releases.close()
            working.append(ours)
            waiting.append(told)
    try:
        task.versions("")
        for told in waiting:  # who has little else to do, may wait for it; who has, reads it late or never
            Thread(target=_tell, args=(told, task.versions), daemon=True).start()
        if ahead is not None:
            ahead()
        project = task.project(parsed)
        number = _next(runs)
        while number is not None or working:
            if number is not None:
                yield _analyse(shares[number], task, project)
                number = _next(runs)
            # All that has come: a worker that is ahead would else wait for this process, share by share.
            while ready := cast("list[Connection]", wait(working, None if number is None else 0) if working else []):
                try:
                    part: ScannedPart | None = ready[0].recv()
                except (EOFError, OSError):  # between two messages, or within one
                    raise UsageError("a worker process died, perhaps out of memory; try --jobs 1") from None
                if part is None:
                    working.remove(ready[0])
                else:
                    yield part
        project.close()
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _tell(connection: Connection, versions: Callable[[str], tuple[Version, ...]]) -> None:
    with suppress(OSError), connection:  # it may be done
        connection.send(versions)


class _ToldLater:
    """The releases of files, which another process reads the repository for: a file without a patch needs none."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._versions: Callable[[str], tuple[Version, ...]] | None = None

    def __call__(self, path: str) -> tuple[Version, ...]:
        if self._versions is None:
            from multiprocessing import parent_process
            from multiprocessing.connection import wait

            other = parent_process()
            if other is not None and self._connection not in wait([self._connection, other.sentinel]):
                sys.exit(1)  # it was killed
            self._versions = cast("Callable[[str], tuple[Version, ...]]", self._connection.recv())
        return self._versions(path)


def _numbers(run: range, context: Any) -> Connection:
    """A pipe that holds some numbers: whoever reads one has it to himself."""
    reader, writer = context.Pipe(duplex=False)
    os.write(writer.fileno(), b"".join(number.to_bytes(_WIDTH) for number in run))
    writer.close()
    return cast("Connection", reader)


def _next(runs: list[Connection]) -> int | None:
    """The number of the next share, from the first run that has one; None at the end of the work."""
    taken = next(filter(None, (os.read(run.fileno(), _WIDTH) for run in runs)), None)
    return int.from_bytes(taken) if taken is not None else None


def _work(shares: list[list[str]], task: Task, runs: list[Connection], connection: Connection) -> None:
    with no_collection():
        project = task.project()
        while (number := _next(runs)) is not None:
            connection.send(_analyse(shares[number], task, project))
        connection.send(None)


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
