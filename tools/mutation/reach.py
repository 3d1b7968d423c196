"""Which tests run which lines of the package: recorded once, over the whole suite, and read for every fault.

python -m tools.mutation.reach [TESTS ...]

The record is `.cache/mutation/reach.json.gz`. A line is known by its file, its function and its text, so that the
record outlives most edits; where TESTS are named, what these reach is renewed. A run that is interrupted leaves what it
has seen until then.
"""

from __future__ import annotations

import ast
import contextlib
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tools.mutation.recorder.sitecustomize import LINE

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("mcore_unpatch", "codemods", "compat")
RECORD = REPOSITORY / ".cache" / "mutation" / "reach.json.gz"
_RECORDER = Path(__file__).parent / "recorder"
_FOLDER = "MCORE_UNPATCH_REACH_FOLDER"  # where the processes of the run that records write
KEPT = 400  # tests of one line that are kept, the quickest: where there are so many, any other may run it too

_LINKED = re.compile(r"^mcore_unpatch/(?=codemods/|compat/)")  # imported through the links

Function = tuple[str, str]  # the file, and the function's name in it; "" is the file itself


def record(jobs: int, tests: Sequence[str] = ("tests",)) -> None:
    """Run the suite, or some of it, and write down what each test reaches. Tests that fail are recorded like others."""
    folder = Path(tempfile.mkdtemp(prefix="reach-"))
    sources = os.pathsep.join(str(REPOSITORY / name) for name in PACKAGES)
    paths = os.pathsep.join(filter(None, (str(_RECORDER), os.environ.get("PYTHONPATH"))))
    options = ["-q", "-p", "no:cacheprovider", "-p", "tools.mutation.reach", "-m", "not growth"]
    with contextlib.suppress(KeyboardInterrupt):
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, "--numprocesses", str(jobs), "--dist", "worksteal", *tests],
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": paths, "MCORE_UNPATCH_REACH_SOURCES": sources, _FOLDER: str(folder)},
            check=False,
        )
    seen = _gathered(folder)
    if RECORD.exists() and tests != ("tests",):
        seen = _renewed(_kept(), seen)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(RECORD, "wt", compresslevel=3) as file:
        json.dump(seen, file)
    shutil.rmtree(folder)


class _Recording:
    """In each process of pytest that runs tests: says which one runs now."""

    def __init__(self) -> None:
        self.now = Path(os.environ[_FOLDER]) / f"worker-{os.getpid()}"
        self.now.write_bytes(bytes(8))
        os.environ["MCORE_UNPATCH_REACH_NOW"] = str(self.now)
        __import__("sitecustomize").begin(runs_the_tests=True)
        self.tests = self.now.with_suffix(".tests").open("a", buffering=1)
        self.count = 0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.count += 1
        with self.now.open("r+b") as file:
            file.write(self.count.to_bytes(8, sys.byteorder))
        sys.monitoring.restart_events()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests.write(f"{self.count}\t{report.duration:.3f}\t{report.nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin of the run that records; the process that hands out the tests runs none."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(_Recording())


def _gathered(folder: Path) -> dict[str, Any]:
    """What all processes wrote down, as one: the tests with their seconds, and by number those of each line."""
    took: dict[str, float] = defaultdict(float)
    of_line: dict[tuple[str, int], set[str]] = defaultdict(set)
    for file in folder.glob("*.tests"):
        worker = file.with_suffix("")
        rows = [line.split("\t", 2) for line in file.read_text().splitlines()]
        tests = {int(number): test for number, _, test in rows}
        for _, duration, test in rows:
            took[test] += float(duration)
        if not worker.with_suffix(".lines").exists():
            continue
        paths = {}
        for row in worker.with_suffix(".files").read_text().splitlines():
            checksum, path = row.split("\t")
            paths[int(checksum)] = _LINKED.sub("", path.removeprefix(f"{REPOSITORY}/"))
        for number, checksum, line in set(LINE.iter_unpack(worker.with_suffix(".lines").read_bytes())):
            if number in tests:
                of_line[paths[checksum], line].add(tests[number])
    ids = sorted(took)
    numbers = {test: number for number, test in enumerate(ids)}
    reached: dict[str, dict[str, dict[str, list[int]]]] = defaultdict(lambda: defaultdict(dict))
    for (path, line), tests_there in sorted(of_line.items()):
        texts = reached[path][function_at(path, line)[1]]
        text = _text_of(path)[line - 1].strip()
        there = {*texts.get(text, ()), *(numbers[test] for test in tests_there)}
        texts[text] = sorted(there, key=lambda number: took[ids[number]])[:KEPT]
    return {"tests": [[test, round(took[test], 3)] for test in ids], "reached": reached}


def _kept() -> dict[str, Any]:
    with gzip.open(RECORD, "rt") as file:
        kept: dict[str, Any] = json.load(file)
    return kept


def _renewed(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """An earlier record, with what newer runs of the same tests have seen in the place of what they saw then."""
    ids = [test for test, _ in old["tests"]]
    numbers = {test: len(ids) + at for at, (test, _) in enumerate(new["tests"])}
    gone = {at for at, test in enumerate(ids) if test in numbers}
    reached = old["reached"]
    for functions in reached.values():
        for name, texts in functions.items():
            functions[name] = {text: [at for at in tests if at not in gone] for text, tests in texts.items()}
    for path, functions in new["reached"].items():
        for name, texts in functions.items():
            known = reached.setdefault(path, {}).setdefault(name, {})
            for text, tests in texts.items():
                known[text] = [*known.get(text, []), *(len(ids) + at for at in tests)]
    return {"tests": [*old["tests"], *new["tests"]], "reached": reached}


@cache
def _record() -> dict[str, dict[str, dict[str, list[str]]]]:
    """By file, function and text of a line: the tests that run it."""
    known = _kept()
    seconds().update(dict(known["tests"]))
    ids = [test for test, _ in known["tests"]]
    return {
        path: {name: {text: [ids[at] for at in tests] for text, tests in texts.items()} for name, texts in own.items()}
        for path, own in known["reached"].items()
    }


def running(path: str, first: int, last: int) -> list[str]:
    """The tests that run lines of a file, by their ids; else those of the function around them, else of the file."""
    functions = _record().get(path, {})
    name = function_at(path, first)[1]
    texts = functions.get(name, {}) if name else {}  # what stands beside functions runs once, at the import
    there = [texts.get(line.strip(), []) for line in _text_of(path)[first - 1 : last]]
    return (
        list(dict.fromkeys(test for tests in there for test in tests))
        or list(dict.fromkeys(test for tests in texts.values() for test in tests))
        or list(dict.fromkeys(test for own in functions.values() for tests in own.values() for test in tests))
    )


@cache
def seconds() -> dict[str, float]:
    """How long each test took that was recorded."""
    return {}


def recorded() -> dict[str, float]:
    """The tests that were recorded, and how long each took."""
    _record()
    return seconds()


@cache
def _text_of(path: str) -> list[str]:
    return (REPOSITORY / path).read_text().splitlines()


@cache
def _functions_of(path: str) -> list[tuple[int, int, str]]:
    """The outermost functions of a file: first and last line, name."""

    def inside(body: list[ast.stmt], prefix: str) -> list[tuple[int, int, str]]:
        rows = []
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                rows.append((first, node.end_lineno or 0, prefix + node.name))
            elif isinstance(node, ast.ClassDef):
                rows += inside(node.body, f"{prefix}{node.name}.")
        return rows

    return inside(ast.parse((REPOSITORY / path).read_text()).body, "")


def function_at(path: str, line: int) -> Function:
    """The outermost function around a line, or the file itself."""
    return path, next((name for first, last, name in _functions_of(path) if first <= line <= last), "")


if __name__ == "__main__":
    record(int(os.environ.get("JOBS", "2")), sys.argv[1:] or ("tests",))
