"""Which tests run which lines of the package: recorded once for every file of tests, and read for every fault.

python -m tools.mutation.reach [TESTS ...]

The record is a folder, `.cache/mutation/reach`, with one small file for each file of tests, written as soon as they
have run: recording that was cut short goes on where it stopped, and a file of tests that changed is recorded again. A
line is known by its file, its function and its text, so that the record outlives most edits of the package.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
_FEW = 10
AS_TEXT = "read as text"  # in the place of a line: the whole file
PACKAGES = ("mcore_unpatch", "codemods", "compat")
RECORD = REPOSITORY / ".cache" / "mutation" / "reach"
TESTS = ("tests/audit", "tests/migrate", "tests/compat", "tests/tool")  # what takes longest first
# Kernels are not tried; whole environments and checkouts are not at hand everywhere.
_LEFT_OUT = ("tests/compat/triton/", "tests/compat/harness/", "tests/migrate/downstream/")


def record(jobs: int, tests: Sequence[str] = TESTS) -> None:
    """Run the tests that were not recorded as they are now, file by file, and write down what each reaches."""
    from tools.mutation.bench import recorded_file, take_a_bench

    waiting = [path for path in _files(tests) if not _is_recorded(path)]
    if not waiting:
        return
    print(f"Which lines the tests of {len(waiting)} files run is recorded first.", flush=True)
    RECORD.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=take_a_bench, initargs=(True,)) as pool:
        runs = {pool.submit(recorded_file, path): path for path in waiting}
        for number, run in enumerate(as_completed(runs), start=1):
            path = runs[run]
            if (error := run.exception()) is not None:  # the others go on; the next run records it again
                print(f"[{number}/{len(runs)}] not recorded, {type(error).__name__}: {error}  {path}", flush=True)
                continue
            took, lines = run.result()
            part = RECORD / f"{path.removesuffix('.py').replace('/', '.')}.json.gz"
            with gzip.open(part.with_suffix(".new"), "wt", compresslevel=3) as file:
                json.dump({"path": path, "of": _digest(path), **packed(took, lines)}, file)
            part.with_suffix(".new").replace(
                part
            )  # whole or not at all: others read it meanwhile, or this is cut short
            print(f"[{number}/{len(runs)}] {sum(took.values()):5.0f} s {len(took):4} tests  {path}", flush=True)
    _parts.cache_clear()


def _files(tests: Sequence[str]) -> list[str]:
    files: dict[str, None] = {}
    for name in tests:
        path = REPOSITORY / name
        if not path.exists():
            raise SystemExit(f"{name} is not there.")
        for file in (
            [path] if path.is_file() else sorted(path.glob("**/test_*.py"), key=lambda file: -file.stat().st_size)
        ):
            relative = file.relative_to(REPOSITORY).as_posix()
            if not relative.startswith(_LEFT_OUT):
                files[relative] = None
    return list(files)


def _is_recorded(path: str) -> bool:
    return any(part["path"] == path and part["of"] == _digest(path) for part in _parts())


def _digest(path: str) -> str:
    return hashlib.sha256((REPOSITORY / path).read_bytes()).hexdigest()[:16]


def packed(took: dict[str, float], lines: dict[tuple[str, int], set[str]]) -> dict[str, Any]:
    """What one file of tests runs. Lines that the same tests run share one list of them; nobody runs the others."""
    numbers = {test: number for number, test in enumerate(took)}
    sets: dict[tuple[int, ...], int] = {(): 0}
    reached: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    merged: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for (path, line), tests in lines.items():
        if (REPOSITORY / path).exists() and line <= len(_text_of(path)):
            key = (path, function_at(path, line), _text_of(path)[line - 1].strip()) if line else (path, "", AS_TEXT)
            merged[key] |= {numbers[test] for test in tests if test in numbers}
    for path, function, text in merged:
        there = tuple(sorted(merged[path, function, text]))
        reached[path][function][text] = sets.setdefault(there, len(sets))
    return {"took": {test: round(taken, 3) for test, taken in took.items()}, "sets": list(sets), "reached": reached}


@cache
def _parts() -> list[dict[str, Any]]:
    parts = []
    for file in sorted(RECORD.glob("*.json.gz")):
        with gzip.open(file, "rt") as text:
            part = json.load(text)
        if (REPOSITORY / part["path"]).exists():
            part["tests"] = list(part["took"])
            parts.append(part)
    return parts


@cache
def seconds() -> dict[str, float]:
    """The tests that were recorded, and how long each took."""
    return {test: took for part in _parts() for test, took in part["took"].items()}


def running(path: str, first: int, last: int) -> tuple[list[str], list[str], bool]:
    """The tests, by their ids, that run lines of a file, or the statement that they belong to; those that may; True.

    What stands beside functions runs once, at the import: there it is the tests of the functions that speak of it.
    Where nobody runs the lines, or their text is newer than the record, it is the tests of the function around it, and
    False. A test that ran lines of the file which are gone may run any that came in their place.
    """
    name = function_at(path, first)
    others = [*_of_lines(path, "", [AS_TEXT]), *_of_what_is_gone(path)]
    if not name:
        few = _of_lines(path, "", [_text_of(path)[line - 1].strip() for line in range(first, last + 1)])
        if 0 < len(few) < _FEW:  # it does not run at every import
            return few, [*_of_functions(path, None), *others], True
        return _of_names(path, first) or _of_functions(path, None), others, True
    start, end = _statement_at(path, first)
    for here in (range(first, last + 1), range(start, end + 1)):
        if tests := _of_lines(path, name, [_text_of(path)[line - 1].strip() for line in here]):
            return tests, others, True
    return _of_functions(path, name), others, False


def _of_lines(path: str, name: str, texts: Iterable[str]) -> list[str]:
    tests: dict[str, None] = {}
    wanted = set(texts)
    for part in _parts():
        known = part["reached"].get(path, {}).get(name, {})
        for text in wanted & known.keys():
            tests |= dict.fromkeys(part["tests"][at] for at in part["sets"][known[text]])
    return list(tests)


@cache
def _of_what_is_gone(path: str) -> list[str]:
    """The tests that ran lines of a file, or of one that is gone from its folder, which it has no longer."""
    there = {(function_at(path, line), text.strip()) for line, text in enumerate(_text_of(path), start=1)}
    tests: dict[str, None] = {}
    for part in _parts():
        for file, functions in part["reached"].items():
            moved = Path(file).parent == Path(path).parent and not (REPOSITORY / file).exists()
            if file != path and not moved:
                continue
            for function, known in functions.items():
                for text, number in known.items():
                    if function and (function, text) not in there:
                        tests |= dict.fromkeys(part["tests"][at] for at in part["sets"][number])
    return list(tests)


def _of_functions(path: str, name: str | None) -> list[str]:
    """The tests of a function, or of all functions of a file."""
    tests: dict[str, None] = {}
    for part in _parts():
        for function, known in part["reached"].get(path, {}).items():
            if function == name or (name is None and function):
                for number in set(known.values()):
                    tests |= dict.fromkeys(part["tests"][at] for at in part["sets"][number])
    return list(tests)


def _of_names(path: str, line: int) -> list[str]:
    """The tests of the lines that speak of what is assigned at a line beside the functions, here or in other files."""
    start, _ = _statement_at(path, line)
    assigned = re.match(r"\s*([A-Za-z_]\w*)\s*(?::|=)", _text_of(path)[start - 1])
    if assigned is None:
        return []
    word = re.compile(rf"\b{assigned[1]}\b")
    tests: dict[str, None] = {}
    for part in _parts():
        for file in [path] if assigned[1].startswith("_") else part["reached"]:
            for function, known in part["reached"].get(file, {}).items():
                for text, number in known.items() if function else ():
                    if word.search(text):
                        tests |= dict.fromkeys(part["tests"][at] for at in part["sets"][number])
    return list(tests)


@cache
def _text_of(path: str) -> list[str]:
    return (REPOSITORY / path).read_text().splitlines()


@cache
def _tree_of(path: str) -> ast.Module:
    return ast.parse((REPOSITORY / path).read_text())


def _statement_at(path: str, line: int) -> tuple[int, int]:
    """The first and the last line of the innermost statement at a line; of a compound one only the head."""
    best = (line, line)
    for node in ast.walk(_tree_of(path)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            if line <= end:
                best = (node.lineno, end)
    return best


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

    return inside(_tree_of(path).body, "")


@cache
def function_at(path: str, line: int) -> str:
    """The outermost function around a line; "" is the file itself."""
    return next((name for first, last, name in _functions_of(path) if first <= line <= last), "")


if __name__ == "__main__":
    record(int(os.environ.get("JOBS", "2")), sys.argv[1:] or TESTS)
