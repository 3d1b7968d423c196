"""Trying faults: one at a time in a copy of the package, with the tests nearest to it, in a process that starts warm.

Starting takes longer than most tests. What they import, torch and Megatron Core above all, is imported once; a trial is
a fork of that process, which imports the package from the copy as it is then.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import pytest

from tests.limits import Countdown
from tools.mutation.faults import Fault
from tools.mutation.nearest import function_of, nearest, running_tests
from tools.mutation.reach import KEPT, PACKAGES, REPOSITORY, recorded

_SOON = 10  # tests that are collected and run before the others are
_FIRST = 6  # cases of a test that are tried before the others get their turn
_HANGS = 90.0  # seconds of one test after which a fault is taken to make it run for ever
_RELEASE = "0.19.2"  # of megatron-core, whose ranks start warm; other releases are left out
# Each trial starts from nothing: no failing example of a property is remembered, and its examples are the same.
_OPTIONS = [
    "-q",
    "--exitfirst",
    "--tb=line",
    "-p",
    "no:cacheprovider",
    "--hypothesis-seed=1",
    f"--rootdir={REPOSITORY}",
]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a fault: `noticed_by` is None where every test passed that was `tried`; None: not tried yet."""

    fault: Fault
    noticed_by: str | None = None
    tried: int | None = None
    said: str = ""  # by the test that failed


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that failed, by file and function, or a file that could not be collected."""

    test: tuple[str, str]
    said: str
    case: str = ""  # its id


class Bench:
    """The copy and the warm process. One at a time in a process; `close` ends what it started."""

    def __init__(self) -> None:
        self.copy = Path(tempfile.mkdtemp(prefix="fault-"))
        for name in PACKAGES:
            inside = "mcore_unpatch" if name == "mcore_unpatch" else f"mcore_unpatch/{name}"
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / name, self.copy / inside, ignore=skip, dirs_exist_ok=True)
        compileall.compile_dir(self.copy, quiet=1)
        os.environ |= {
            "PYTHONPATH": str(self.copy),
            "PYTHONDONTWRITEBYTECODE": "1",  # the compiled copy of a fault would outlive it
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.copy / ".hypothesis"),
            "OMP_NUM_THREADS": "1",
        }
        sys.dont_write_bytecode = True
        sys.path.append(str(REPOSITORY / "tests"))
        sys.path[:] = [str(self.copy), *(path for path in sys.path if path not in ("", str(REPOSITORY)))]
        for name in ("hypothesis", "libcst.metadata", "rich", "tomlkit", "typer"):
            importlib.import_module(name)
        self.ranks: _Ranks | None = None
        self.passing: dict[str, bool] = {}
        self.failing: set[tuple[str, str]] = set()

    def close(self) -> None:
        """End the warm ranks, remove the copy."""
        if self.ranks:
            self.ranks.end()
        shutil.rmtree(self.copy)

    def attempt(self, fault: Fault, count: int, seconds: float) -> Result:
        """Run the tests nearest to a fault until one fails, which passes without the fault."""
        if fault.path.startswith("compat/"):
            self.ranks = self.ranks or _Ranks()
        near = [(test.path, test.name) for test in nearest(fault, count)]
        tests = [test for test in near if test not in self.failing]
        top, _, rest = fault.path.partition("/")
        target = self.copy / "mcore_unpatch" / (rest if top == "mcore_unpatch" else fault.path)
        running, known = set(running_tests(fault)), recorded()

        def reaches_it(case: str) -> bool:
            return not running or len(running) >= KEPT or case in running or case not in known

        source = target.read_bytes()
        compiled = Path(importlib.util.cache_from_source(str(target)))
        all_tried, time_left = 0, Countdown(seconds)
        turn, later = tests[:_SOON], tests[_SOON:]  # most faults fall to the first, and collecting takes its time too
        while True:
            compiled.unlink(missing_ok=True)
            target.write_bytes(fault.applied_to(source))
            try:
                failure, tried = self._run(turn, time_left.left(), reaches_it)
            finally:
                target.write_bytes(source)
            all_tried += tried
            if failure is None:
                if not later or not time_left.left():
                    late = later or not self._ran_all()
                    return Result(fault, None, all_tried, "then there was no more time" if late else "")
                turn, later = later, []
                continue
            if self._passes(failure):
                return Result(fault, "::".join(failure.test).rstrip(":"), all_tried, failure.said[:300])
            if failure.test in turn:  # those before it passed
                turn = turn[turn.index(failure.test) + 1 :]
            else:
                turn = [test for test in turn if test[0] != failure.test[0]]

    def _ran_all(self) -> bool:
        return "stopped" not in (self.copy / "log.txt").read_text()

    def _passes(self, failure: Failure) -> bool:
        """Whether a test that failed passes without the fault."""
        test, case = failure.test, failure.case
        known_by = case or test[0]
        if known_by not in self.passing:
            self.passing[known_by] = self._run([test], _HANGS, lambda other: not case or other == case)[0] is None
            if not self.passing[known_by]:
                self.failing.add(test)
                print(f"left out, it fails without any fault: {known_by}", flush=True)
        return self.passing[known_by]

    def _run(
        self, tests: Sequence[tuple[str, str]], seconds: float, wanted: Callable[[str], bool]
    ) -> tuple[Failure | None, int]:
        """The first test that fails, and how many were run; `wanted` says which of their cases are."""
        log = self.copy / "log.txt"
        log.write_text("")
        if not tests:
            return None, 0
        if self.ranks:
            self.ranks.start()
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.setsid()
                os.chdir(REPOSITORY)
                out = os.open(os.devnull, os.O_WRONLY)
                os.dup2(out, 1)
                os.dup2(out, 2)
                if self.ranks:
                    self.ranks.adopt(self.copy)
                files = list(dict.fromkeys(path for path, _ in tests))
                code = pytest.main([*_OPTIONS, *files], plugins=[_Watch(tests, log, seconds, wanted)])
            finally:
                os._exit(code)
        hangs, written = Countdown(_HANGS), 0
        while not (done := os.waitpid(child, os.WNOHANG))[0]:
            if (size := log.stat().st_size) != written:
                hangs, written = Countdown(_HANGS), size
            if not hangs.left():
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                if self.ranks:
                    self.ranks.end()
                break
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):  # what the tests started and left behind
            os.killpg(child, signal.SIGKILL)
        lines = log.read_text().splitlines()
        started = [line.split("\t")[1] for line in lines if line.startswith("started")]
        for line in lines:
            if line.startswith("failed"):
                _, case, said = line.split("\t")
                return Failure(function_of(case), said, case if "::" in case else ""), len(started)
        if not done[0] or os.waitstatus_to_exitcode(done[1]) not in (0, 2, 5):
            case = started[-1] if started else tests[0][0]
            said = "the limit of time" if not done[0] else "the process ended"
            return Failure(function_of(case), said, case if started else ""), len(started)
        return None, len(started)


_benches: list[Bench] = []  # the one of this process


def take_a_bench() -> None:
    """In a process of its own that tries faults: before the first."""
    _benches.append(Bench())
    Finalize(None, _benches[0].close, exitpriority=1)


def attempt(fault: Fault, count: int, seconds: float) -> Result:
    """What becomes of a fault, on the bench of this process."""
    return _benches[0].attempt(fault, count, seconds)


class _Watch:
    """Chooses and orders what was collected, and puts down what fails; in the trial's process."""

    def __init__(
        self, tests: Sequence[tuple[str, str]], log: Path, seconds: float, wanted: Callable[[str], bool]
    ) -> None:
        self.rank = {test: number for number, test in enumerate(tests)}
        self.wanted = wanted
        self.log = log.open("a", buffering=1)
        self.time = Countdown(seconds)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        def chosen(item: pytest.Item) -> bool:
            of_now = "0.18.2" not in item.nodeid and not item.get_closest_marker("growth")
            return function_of(item.nodeid) in self.rank and of_now and self.wanted(item.nodeid)

        taken: Counter[tuple[str, str]] = Counter()

        def turn(item: pytest.Item) -> tuple[bool, int]:
            test = function_of(item.nodeid)
            taken[test] += 1
            return taken[test] > _FIRST, self.rank[test]

        items[:] = sorted(filter(chosen, items), key=turn)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._say("started", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
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
    """A nursery of the tests' harness that has imported torch and Megatron, from which every trial has its ranks."""

    def __init__(self) -> None:
        sys.path.append(str(REPOSITORY / "tests" / "compat"))
        for name in ("torch", "megatron.core.models.gpt.gpt_model", "harness.pool"):
            importlib.import_module(name)
        self.pool: Any = None

    def start(self) -> None:
        """Start the nursery, unless it runs."""
        self.pool = self.pool or sys.modules["harness.pool"]._Pool(_RELEASE)

    def adopt(self, folder: Path) -> None:
        """In the trial's process: the harness finds the nursery there, as if it had started it itself."""
        self.pool.folder = tempfile.TemporaryDirectory(dir=folder)
        self.pool.process = _NotMyChild(self.pool.process.pid)
        sys.modules["harness.pool"]._pools[_RELEASE] = self.pool

    def end(self) -> None:
        """Kill the nursery with all its ranks."""
        if self.pool:
            os.killpg(self.pool.process.pid, signal.SIGKILL)
            self.pool.process.wait()
            self.pool = None


@dataclass
class _NotMyChild:
    """What the harness asks of a process that another one started."""

    pid: int
    poll: Callable[[], None] = lambda: None
    kill: Callable[[], None] = lambda: None

    def wait(self, timeout: float = 0.0) -> int:
        return 0
