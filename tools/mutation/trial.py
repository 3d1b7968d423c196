"""Trying faults: one at a time in a copy of the package, with the tests that run its lines, the nearest first."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from pathlib import Path

from tests.limits import Countdown
from tools.mutation.bench import BENCHES, Bench
from tools.mutation.faults import Fault
from tools.mutation.nearest import function_of, nearest
from tools.mutation.reach import REPOSITORY

_TURNS = (10, 40, 150)  # tests that are collected and run together: most faults fall to the first
_FIRST = 6  # cases of a test that are tried before the others get their turn
_UNREACHED = 20.0  # seconds for a fault whose lines no test is known to run
UNREACHED, LATE = "no test runs it", "then there was no more time"  # what is said of a fault that nobody noticed
_PASSING: set[str] = set()  # tests by their ids that pass without any fault
FAILING = REPOSITORY / ".cache" / "mutation" / "failing.txt"  # those that do not, for all processes of a run


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a fault: `noticed_by` is None where every test passed that was `tried`; None: not tried yet."""

    fault: Fault
    noticed_by: str | None = None
    tried: int | None = None
    said: str = ""  # by the test that failed
    seconds: float = 0.0


def attempt(fault: Fault, seconds: float) -> Result:
    """What becomes of a fault, on the bench of this process: run tests until one fails that passes without it."""
    bench = BENCHES[0]
    cases, reached = nearest(fault)
    bench.warm_up(cases)  # once for each process: it is not of this fault's time
    start = time.monotonic()
    limit = Countdown(seconds if reached else _UNREACHED)
    by_function: dict[tuple[str, str], list[str]] = {}
    failing = known_to_fail()
    for case in cases:
        if not failing & {case, case.partition("::")[0]}:
            by_function.setdefault(function_of(case), []).append(case)
    functions, tried = list(by_function), 0
    late = LATE if reached else UNREACHED
    said = "" if reached else UNREACHED
    turns = [functions[low:high] for low, high in zip((0, *_TURNS), (*_TURNS, len(functions)), strict=True)]
    for turn in filter(None, turns):
        wanted = [case for function in turn for case in by_function[function][:_FIRST]]
        wanted += [case for function in turn for case in by_function[function][_FIRST:]]
        while wanted:
            if not limit.left():
                return Result(fault, None, tried, late, time.monotonic() - start)
            files = list(dict.fromkeys(case.partition("::")[0] for case in wanted))
            with Applied(bench.copy, fault):
                ran = bench.run(files, _Chosen(wanted), limit.left())
            tried += len(ran.begun)
            if not ran.failed:
                said = said if ran.ran_all else late
                break
            if _passes(bench, ran.failed):
                return Result(fault, ran.failed, tried, ran.said[:300], time.monotonic() - start)
            print(f"left out, it fails without any fault: {ran.failed}", flush=True)
            done = {*ran.begun, ran.failed}
            wanted = [case for case in wanted if case not in done and case.partition("::")[0] != ran.failed]
    return Result(fault, None, tried, said, time.monotonic() - start)


def known_to_fail() -> set[str]:
    """The tests that were seen to fail without any fault: nothing is learned from them."""
    return set(FAILING.read_text().splitlines()) if FAILING.exists() else set()


def _passes(bench: Bench, failed: str) -> bool:
    """Whether a test that failed, or the file that could not be collected, passes without the fault."""
    if failed in known_to_fail():
        return False
    if failed not in _PASSING:
        path, is_test, _ = failed.partition("::")
        if bench.run([path], _Chosen([failed] if is_test else []), 600.0).failed:
            with FAILING.open("a") as file:
                file.write(f"{failed}\n")
            return False
        _PASSING.add(failed)
    return True


@dataclass(frozen=True)
class _Chosen:
    """Those of the collected tests that are wanted, in their order."""

    wanted: list[str]

    def __call__(self, collected: list[str]) -> list[str]:
        there = set(collected)
        return [case for case in self.wanted if case in there]


class Applied:
    """The copy with the fault in it, until the end of the block."""

    def __init__(self, copy: Path, fault: Fault) -> None:
        top, _, rest = fault.path.partition("/")
        self.target = copy / "mcore_unpatch" / (rest if top == "mcore_unpatch" else fault.path)
        self.fault = fault

    def __enter__(self) -> None:
        self.source = self.target.read_bytes()
        Path(importlib.util.cache_from_source(str(self.target))).unlink(missing_ok=True)
        self.target.write_bytes(self.fault.applied_to(self.source))

    def __exit__(self, *_: object) -> None:
        self.target.write_bytes(self.source)
