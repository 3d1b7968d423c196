"""Where tests run: on a copy of the package, in forks of a process that starts warm.

Starting takes longer than most tests. What they import, torch and Megatron Core above all, is imported once, here and
in the processes that ranks and audited programs are forked from; a run is a fork of this process, which imports the
package from the copy as it is then.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.limits import Countdown
from tools.mutation.reach import PACKAGES, REPOSITORY, seconds
from tools.mutation.recorder.sitecustomize import LINE, NOW, SOURCES, begin

_RELEASE = "0.19.2"  # of megatron-core, whose processes start warm; other releases are left out
_HANGS = 60.0  # seconds of one test, beyond five times what it takes, after which it is taken to run for ever
# Each run starts from nothing: no failing example of a property is remembered, and its examples are the same.
_OPTIONS = ["-q", "--tb=line", "-p", "no:cacheprovider", "--hypothesis-seed=1", f"--rootdir={REPOSITORY}"]


class Run(NamedTuple):
    """What became of tests: those that were begun, and the first that failed, by its id, with what it said."""

    begun: list[str]
    took: dict[str, float]
    failed: str = ""
    said: str = ""
    ran_all: bool = True  # none was left out for want of time


class Bench:
    """The copy and the warm processes. One at a time in a process; `close` ends what it started."""

    def __init__(self, recording: bool = False) -> None:
        self.copy = Path(tempfile.mkdtemp(prefix="fault-"))
        copied_to(self.copy)
        compileall.compile_dir(self.copy, quiet=1)
        os.environ |= {
            "PYTHONPATH": str(self.copy),
            "PYTHONDONTWRITEBYTECODE": "1",  # the compiled copy of a fault would outlive it
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.copy / ".hypothesis"),
            "OMP_NUM_THREADS": "1",
        }
        self.recording = recording
        if recording:  # in every process that a test starts
            (self.copy / "now").write_bytes(bytes(8))
            recorder = Path(__file__).parent / "recorder"
            os.environ |= {
                "PYTHONPATH": f"{recorder}{os.pathsep}{self.copy}",
                NOW: str(self.copy / "now"),
                SOURCES: str(self.copy / "mcore_unpatch"),
            }
        sys.dont_write_bytecode = True
        sys.path += [str(REPOSITORY / "tests" / folder) for folder in (".", "compat", "audit")]
        sys.path[:] = [str(self.copy), *(path for path in sys.path if path not in ("", str(REPOSITORY)))]
        for name in ("hypothesis", "libcst.metadata", "rich", "tomlkit", "typer"):
            importlib.import_module(name)
        self.warm: dict[str, _Ranks | _Programs] = {}

    def close(self) -> None:
        """End the warm processes, remove the copy."""
        self._end_warm()
        shutil.rmtree(self.copy)

    def warm_up(self, files: Collection[str]) -> None:
        """Start the processes that tests of some files are forked from, unless they run."""
        for folder, kind in (("tests/compat/", _Ranks), ("tests/audit/", _Programs)):
            if any(path.startswith(folder) for path in files):
                if folder not in self.warm:
                    self.warm[folder] = kind()
                self.warm[folder].start()

    def run(
        self, files: Sequence[str], chosen: Callable[[list[str]], list[str]], budget: float, exit_first: bool = True
    ) -> Run:
        """Run those of the tests of some files that `chosen` picks from their ids, in its order."""
        log = self.copy / "log.txt"
        log.write_text("")
        self.warm_up(files)
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.setsid()
                os.chdir(self.copy)  # whoever looks for the package in the current folder finds the copy
                out = os.open(self.copy / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(out, 1)
                os.dup2(out, 2)
                for warm in self.warm.values():
                    warm.adopt(self.copy)
                watch = _Watch(chosen, log, budget, self.copy / "now" if self.recording else None)
                options = [*_OPTIONS, "--exitfirst"] if exit_first else _OPTIONS
                code = pytest.main([*options, *(str(REPOSITORY / path) for path in files)], plugins=[watch])
            finally:
                os._exit(code)
        done = self._awaited(child, log)
        with contextlib.suppress(ProcessLookupError):  # what the tests started and left behind
            os.killpg(child, signal.SIGKILL)
        return _read(log, files, done)

    def _awaited(self, child: int, log: Path) -> int | None:
        """The exit code, or None where a test ran for ever and was ended."""
        usual, written = seconds(), -1
        hangs = Countdown(_HANGS)
        while not (done := os.waitpid(child, os.WNOHANG))[0]:
            if (size := log.stat().st_size) != written:
                rows = log.read_text().splitlines()
                last = rows[-1].split("\t")[1] if rows and rows[-1].startswith("started\t") else ""
                hangs, written = Countdown(_HANGS * (5 if self.recording else 1) + 5 * usual.get(last, 0.0)), size
            if not hangs.left():
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                self._end_warm()
                return None
            time.sleep(0.02)
        return os.waitstatus_to_exitcode(done[1])

    def _end_warm(self) -> None:
        for warm in self.warm.values():
            warm.end()

    def recorded_file(self, path: str) -> tuple[dict[str, float], dict[tuple[str, int], set[str]]]:
        """How long each test of a file takes, and which of them run each line."""
        for kind in ("lines", "tests"):
            (self.copy / f"now.{kind}").write_bytes(b"")
        ran = self.run([path], lambda ids: ids, float("inf"), exit_first=False)
        numbers: dict[int, set[str]] = defaultdict(set)
        for row in (self.copy / "now.tests").read_text().splitlines():
            number, test = row.split("\t", 1)
            numbers[int(number)].add(test)
        named = (self.copy / "now.files").read_text() if (self.copy / "now.files").exists() else ""
        paths = {int(row.split("\t")[0]): _in_repository(row.split("\t")[1], self.copy) for row in named.splitlines()}
        lines: dict[tuple[str, int], set[str]] = defaultdict(set)
        data = (self.copy / "now.lines").read_bytes()
        for at, checksum, line in set(LINE.iter_unpack(data[: len(data) // LINE.size * LINE.size])):
            if at in numbers and checksum in paths:
                lines[paths[checksum], line] |= numbers[at]
        return {test: ran.took.get(test, 300.0) for test in ran.begun}, dict(lines)


def copied_to(folder: Path) -> None:
    """Copy the package into a folder, as it is installed."""
    for name in PACKAGES:
        inside = "mcore_unpatch" if name == "mcore_unpatch" else f"mcore_unpatch/{name}"
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, folder / inside, ignore=skip, dirs_exist_ok=True)


def _in_repository(path: str, copy: Path) -> str:
    relative = path.removeprefix(f"{copy}/")
    inner = relative.removeprefix("mcore_unpatch/")
    return inner if inner.startswith(("codemods/", "compat/")) else relative


def _read(log: Path, files: Sequence[str], code: int | None) -> Run:
    rows = [row.split("\t") for row in log.read_text().splitlines()]
    begun = list(dict.fromkeys(row[1] for row in rows if row[0] == "started"))
    took: dict[str, float] = defaultdict(float)
    for row in rows:
        if row[0] == "took":
            took[row[1]] += float(row[2])
    ran_all = not any(row[0] == "stopped" for row in rows)
    for row in rows:
        if row[0] == "failed":
            return Run(begun, took, row[1], row[2], ran_all)
    if code not in (0, 1, 2, 5):
        said = "the limit of time" if code is None else "the process ended"
        return Run(begun, took, begun[-1] if begun else files[0], said, ran_all)
    return Run(begun, took, ran_all=ran_all)


class _Watch:
    """Chooses and orders what was collected, and puts down what happens; in the process of the run."""

    def __init__(
        self, chosen: Callable[[list[str]], list[str]], log: Path, budget: float, recorded: Path | None
    ) -> None:
        self.chosen = chosen
        self.log = log.open("a", buffering=1)
        self.time = Countdown(budget)
        self.recorded = recorded
        self.count = 0
        # Fixtures of several tests: the number that each was made under, for which test, and how long it took.
        self.shared: dict[Any, tuple[int, str, float]] = {}
        if recorded:
            self.count = int.from_bytes(recorded.read_bytes(), sys.byteorder)
            self.numbers = recorded.with_suffix(".tests").open("a", buffering=1)
            begin(runs_the_tests=True)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        of_now = {
            item.nodeid: item for item in items if "0.18.2" not in item.nodeid and not item.get_closest_marker("growth")
        }
        items[:] = [of_now[test] for test in self.chosen(list(of_now))]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._say("started", nodeid)
        if self.recorded:
            self.numbers.write(f"{self._next_number(self.recorded)}\t{nodeid}\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        """What several tests share is made under a number of its own, which belongs to all of them."""
        if not self.recorded or fixturedef.scope == "function":
            return (yield)
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]  # ends with "(setup)"
        number, start = self._next_number(self.recorded), time.monotonic()
        try:
            return (yield)
        finally:
            self.shared[fixturedef] = (number, test, time.monotonic() - start)
            self.numbers.write(f"{self._next_number(self.recorded)}\t{test}\n")

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        known = getattr(item, "_fixtureinfo", None)
        if known is None or not self.recorded:
            return
        for name in known.names_closure:
            for fixture in known.name2fixturedefs.get(name, ()):
                if fixture in self.shared:
                    number, first, took = self.shared[fixture]
                    self.numbers.write(f"{number}\t{item.nodeid}\n")
                    if item.nodeid != first:  # alone it would have to wait for it too
                        self._say("took", item.nodeid, f"{took:.3f}")

    def _next_number(self, file: Path) -> int:
        self.count += 1
        with file.open("r+b") as now:
            now.write(self.count.to_bytes(8, sys.byteorder))
        sys.monitoring.restart_events()
        return self.count

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._say("took", report.nodeid, f"{report.duration:.3f}")
        if report.failed:
            self._say("failed", report.nodeid, " ".join(str(report.longrepr)[-300:].split()))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._say("failed", report.nodeid.partition("::")[0], " ".join(str(report.longrepr)[-300:].split()))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        if not self.time.left():
            self._say("stopped")
            item.session.shouldstop = "no more time"
        return (yield)

    def _say(self, *words: str) -> None:
        self.log.write("\t".join(words) + "\n")


class _Ranks:
    """A nursery of the tests' harness that has imported torch and Megatron, from which every run has its ranks."""

    def __init__(self) -> None:
        for name in ("torch", "megatron.core.models.gpt.gpt_model", "harness.pool"):
            importlib.import_module(name)
        self.pool: Any = None

    def start(self) -> None:
        """Start the nursery, unless it runs."""
        self.pool = self.pool or sys.modules["harness.pool"]._Pool(_RELEASE)

    def adopt(self, folder: Path) -> None:
        """In the process of the run: the harness finds the nursery there, as if it had started it itself."""
        if self.pool:
            self.pool.folder = tempfile.TemporaryDirectory(dir=folder)
            self.pool.process = _NotMyChild(self.pool.process.pid)
            sys.modules["harness.pool"]._pools[_RELEASE] = self.pool

    def end(self) -> None:
        """Kill the nursery with all its ranks."""
        if self.pool:
            os.killpg(self.pool.process.pid, signal.SIGKILL)
            self.pool.process.wait()
            self.pool = None


class _Programs:
    """The process that forks for every program under the audit: it has imported torch and Megatron, not the package."""

    def __init__(self) -> None:
        self.module = importlib.import_module("programs")
        self.process: Any = None

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.process is None:
            self.process = self.module.start(_RELEASE)

    def adopt(self, folder: Path) -> None:
        """In the process of the run: its tests find it there, as if they had started it themselves."""
        if self.process:
            self.module.PROCESSES[_RELEASE] = self.process

    def end(self) -> None:
        """Kill it."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


class _NotMyChild:
    """What the harness asks of a process that another one started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> None:
        """It runs."""

    def kill(self) -> None:
        """Its owner does."""

    def wait(self, timeout: float = 0.0) -> int:
        """Its owner does."""
        return 0


BENCHES: list[Bench] = []  # the one of this process


def take_a_bench(recording: bool = False) -> None:
    """In a process of its own that runs tests: before the first."""
    BENCHES.append(Bench(recording))
    Finalize(None, BENCHES[0].close, exitpriority=1)


def recorded_file(path: str) -> tuple[dict[str, float], dict[tuple[str, int], set[str]]]:
    """What the tests of a file reach, on the bench of this process."""
    return BENCHES[0].recorded_file(path)
