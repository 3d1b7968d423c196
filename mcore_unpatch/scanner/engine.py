"""Analyse many files: in this process, or split over several."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcore_unpatch import tree
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings import FileError, Finding
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.scanner import detect, prefilter
from mcore_unpatch.scanner.project import Project, Reader
from mcore_unpatch.scanner.source import Unreadable, check, decode

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

# Below this many bytes a second process costs more than it saves.
_WORTH_A_PROCESS = 1_500_000
# Up to this many bytes every file's syntax is checked; beyond, only of files that may patch Megatron.
_CHECKED_THROUGHOUT = 2_000_000

IGNORE_MARK = b"unpatch:"


@dataclass(frozen=True, slots=True)
class Task:
    """What every part of one analysis shares; `exists` and `read` take paths relative to the project's root."""

    read: Reader
    exists: Callable[[str], bool]
    versions: Callable[[str], tuple[Version, ...]]  # the releases a file is judged for
    mocks: bool
    thorough: bool = False  # also tell of broken files that have nothing to do with Megatron


@dataclass(frozen=True, slots=True)
class WorkTree:
    """Files on disk."""

    top: Path

    def read(self, path: str) -> bytes:
        """The bytes of a file."""
        with open(tree.descriptor(self.top, path), "rb") as file:  # noqa: PTH123 - a descriptor
            return file.read()

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return tree.exists(self.top, path)

    def size(self, path: str) -> int:
        """Bytes of a file, 0 if it is gone."""
        try:
            return os.stat(f"{self.top}/{path}").st_size  # noqa: PTH116
        except OSError:
            return 0


@dataclass(slots=True)
class Part:
    """What some files gave; `marked` are those that may carry an ignore comment."""

    files: int = 0
    findings: list[Finding] = field(default_factory=list)
    errors: list[FileError] = field(default_factory=list)
    marked: list[str] = field(default_factory=list)


def analyse(paths: list[str], task: Task) -> Part:
    """Analyse some files of a project in this process."""
    part = Part(len(paths))
    project = Project(task.exists, task.read)
    for path in paths:
        try:
            if IGNORE_MARK in project.data(path):
                part.marked.append(path)
            if task.thorough:
                check(project.data(path))
            if may_patch(project, path, task.mocks):
                part.findings += detect.findings_in(project.resolver(path), task.versions)
        except FileNotFoundError:
            continue  # listed by git, deleted on disk
        except Unreadable as error:
            part.errors.append(FileError(path, str(error)))
        except OSError as error:
            part.errors.append(FileError(path, f"cannot be read: {error.strerror or error}"))
        except (RecursionError, MemoryError):
            part.errors.append(FileError(path, "nested too deeply to be analysed"))
    return part


def may_patch(project: Project, path: str, mocks: bool) -> bool:
    """Whether a file has to be parsed; raises `Unreadable` for one that is no text."""
    data = project.data(path)
    if b"\0" in data or not data.isascii() or b"coding" in data[:400]:
        decode(data)
    if prefilter.mentions_megatron(path, data):
        return prefilter.may_install(data, mocks)
    return prefilter.may_install_unsaid(data) and project.related(path)


def analyse_parallel(paths: list[str], files: WorkTree, task: Task, jobs: int) -> Iterator[Part]:
    """The same over several processes, part by part as they come in; one job stays in this process."""
    sizes = {path: files.size(path) for path in paths}
    task = replace(task, thorough=sum(sizes.values()) <= _CHECKED_THROUGHOUT)
    workers = min(jobs, 1 + sum(sizes.values()) // _WORTH_A_PROCESS)
    parts = workers if workers == 1 else max(workers, min(len(paths) // 200, workers * 8))
    shares = [(share, task) for share in _deal(sizes, parts)]
    if workers == 1:
        yield from map(_analyse_share, shares)
        return
    import multiprocessing

    # Not a pool: this process takes a share of the work as well, and nothing has to be shut down at the end.
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    waiting = []
    for index in range(1, workers):
        ours, theirs = context.Pipe(duplex=False)
        context.Process(target=_work, args=(shares[index::workers], theirs), daemon=True).start()
        theirs.close()  # else the end of a worker that died would never be seen
        waiting.append((ours, len(shares[index::workers])))
    yield from map(_analyse_share, shares[0::workers])
    for connection, count in waiting:
        for _ in range(count):
            try:
                yield connection.recv()
            except EOFError:
                raise UsageError("a worker process died, perhaps out of memory; try --jobs 1") from None


def _deal(sizes: dict[str, int], parts: int) -> list[list[str]]:
    """Parts of like size. A folder stays together: its files import each other, and each part parses for itself."""
    folders: dict[str, list[str]] = {}
    for path in sizes:
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    shares: list[list[str]] = [[] for _ in range(parts)]
    weights = [0] * parts
    weighed = [(sum(sizes[path] for path in files), files) for files in folders.values()]
    for weight, files in sorted(weighed, key=lambda item: -item[0]):
        lightest = weights.index(min(weights))
        shares[lightest] += files
        weights[lightest] += weight
    return shares


def _work(shares: list[tuple[list[str], Task]], connection: Connection) -> None:
    for share in shares:
        connection.send(_analyse_share(share))


def _analyse_share(share: tuple[list[str], Task]) -> Part:
    with _no_collection():
        return analyse(*share)


class _no_collection:  # noqa: N801 - reads as a statement
    """Syntax trees are many small objects that all stay: looking for garbage among them takes a third of the time."""

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_enabled:
            gc.enable()
