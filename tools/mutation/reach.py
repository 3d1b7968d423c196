"""Which tests run which functions of the package: recorded once, over the whole suite, and read for every fault.

python -m tools.mutation.reach

The record lies below `.cache/mutation/reach`. Functions are known by file and name, so that it outlives most edits.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("mcore_unpatch", "codemods", "compat")
RECORD = REPOSITORY / ".cache" / "mutation" / "reach"
_RECORDER = Path(__file__).parent / "recorder"

_LINKED = re.compile(r"^mcore_unpatch/(?=codemods/|compat/)")  # imported through the links

Function = tuple[str, str]  # the file, and the function's name in it; "" is the file itself


def record(jobs: int) -> None:
    """Run the suite and write down what each test reaches. Tests that fail are recorded like others."""
    RECORD.mkdir(parents=True, exist_ok=True)
    for old in RECORD.iterdir():
        old.unlink()
    sources = os.pathsep.join(str(REPOSITORY / name) for name in PACKAGES)
    paths = os.pathsep.join(filter(None, (str(_RECORDER), os.environ.get("PYTHONPATH"))))
    options = ["-q", "-p", "no:cacheprovider", "-p", "tools.mutation.reach", "-m", "not growth"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--numprocesses", str(jobs), "--dist", "worksteal", "tests"],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": paths, "MCORE_UNPATCH_REACH_SOURCES": sources},
        check=False,
    )
    (RECORD / "done").touch()


class _Recording:
    """In each process of pytest that runs tests: says which one runs now."""

    def __init__(self) -> None:
        self.now = RECORD / f"worker-{os.getpid()}"
        self.now.write_bytes(bytes(8))
        os.environ["MCORE_UNPATCH_REACH_NOW"] = str(self.now)
        __import__("sitecustomize").begin()
        self.tests = self.now.with_suffix(".tests").open("a", buffering=1)
        self.count = 0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.count += 1
        with self.now.open("r+b") as file:
            file.write(self.count.to_bytes(8, sys.byteorder))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests.write(f"{self.count}\t{report.duration:.3f}\t{report.nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin of the run that records; the process that hands out the tests runs none."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(_Recording())


@cache
def reached() -> dict[Function, list[str]]:
    """The tests that run each function, by their ids; those of a file under the name \"\"."""
    found: dict[Function, dict[str, None]] = defaultdict(dict)
    within = f"{REPOSITORY}/"
    for file in RECORD.glob("*.reached"):
        names = {number: test for number, _, test in _lines(file.with_suffix(".tests"))}
        for number, path, function in _lines(file):
            if test := names.get(number):
                relative = _LINKED.sub("", path.removeprefix(within))
                found[relative, function.partition(".<locals>")[0]][test] = None
                found[relative, ""][test] = None
    return {function: list(tests) for function, tests in found.items()}


@cache
def seconds() -> dict[str, float]:
    """How long each test took."""
    took: dict[str, float] = defaultdict(float)
    for file in RECORD.glob("*.tests"):
        for _, duration, test in _lines(file):
            took[test] += float(duration)
    return took


def _lines(file: Path) -> list[list[str]]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [line.split("\t", 2) for line in lines if line.count("\t") >= 2]


def function_at(path: str, line: int) -> Function:
    """The outermost function around a line, or the file itself."""

    def inside(body: list[ast.stmt], prefix: str) -> str:
        for node in body:
            if node.lineno <= line <= (node.end_lineno or 0):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    return prefix + node.name
                if isinstance(node, ast.ClassDef):
                    return inside(node.body, f"{prefix}{node.name}.")
        return ""

    return path, inside(ast.parse((REPOSITORY / path).read_text()).body, "")


if __name__ == "__main__":
    record(jobs=int(os.environ.get("JOBS", "2")))
