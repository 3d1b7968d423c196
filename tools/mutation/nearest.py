"""Which tests are nearest to a fault: those that run its function and share its words, the rare ones above all."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.mutation.faults import Fault
from tools.mutation.reach import PACKAGES, REPOSITORY, function_at, reached, seconds

# Over whole releases and environments, or with a compiler: tried after the others.
_SLOW = re.compile("releases|accuracy|plugins|torture|test_own_tests|test_compiles")


@dataclass(frozen=True, slots=True)
class Test:
    """A test function by its file and name, and the words it is written in, those of its cases included."""

    path: str
    name: str
    words: frozenset[str]


def nearest(fault: Fault, folders: tuple[str, ...], count: int) -> list[Test]:
    """The tests to try for a fault, the nearest first."""
    known = _tests(folders)
    seen = Counter(word for test in known for word in test.words)
    wanted = {word: weight * math.log(len(known) / seen[word]) for word, weight in _wanted(fault).items() if seen[word]}

    recorded = {function_of(test) for test in seconds()}
    running = {function_of(test) for test in running_tests(fault)}

    def shared(test: Test) -> float:
        near = 0.1 if _SLOW.search(test.path) else 2.0 if test.path.startswith(f"{folders[0]}/") else 1.0
        if (test.path, test.name) in recorded:
            near *= 3.0 if (test.path, test.name) in running else 0.03
        return near * sum(wanted.get(word, 0.0) for word in test.words) / math.log2(8 + len(test.words))

    return sorted(known, key=shared, reverse=True)[:count]


def running_tests(fault: Fault) -> list[str]:
    """The tests, by their ids, that run the function of a fault; those of its file where nothing is known of it."""
    known = reached()
    return known.get(function_at(fault.path, fault.line)) or known.get((fault.path, ""), [])


def function_of(nodeid: str) -> tuple[str, str]:
    """The file and the function of a test."""
    path, _, rest = nodeid.partition("::")
    return path, rest.partition("[")[0].rpartition("::")[2]


def _wanted(fault: Fault) -> Counter[str]:
    """What a test of the fault would speak of: its lines, the function around them, and who calls that."""
    source = (REPOSITORY / fault.path).read_text()
    lines = source.splitlines()
    wanted: Counter[str] = Counter()
    around = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.lineno <= fault.line <= (node.end_lineno or 0)
    ]
    weighted = [("\n".join(lines[fault.line - 1 : fault.last_line]), 3.0), (fault.path, 3.0)]
    for node in around:
        weighted.append((node.name, 3.0))
        if isinstance(node, ast.FunctionDef):
            weighted.append((ast.unparse(node), 1.0))
    callers = {node.name for node in around}
    for weight in (2.0, 1.0):
        callers = {name for called in callers for name in _callers().get(called, ())}
        weighted += [(name, weight) for name in callers] if len(callers) < 10 else []
    for text, weight in weighted:
        for word in _words(text):
            wanted[word] = max(wanted[word], weight)  # type: ignore[assignment]
    return wanted


@cache
def _callers() -> dict[str, set[str]]:
    """Which functions of the package speak of a function of that name."""
    found: dict[str, set[str]] = {}
    for folder in PACKAGES:
        for path in (REPOSITORY / folder).glob("**/*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef):
                    for inner in ast.walk(node):
                        name = inner.id if isinstance(inner, ast.Name) else getattr(inner, "attr", "")
                        found.setdefault(name, set()).add(node.name)
    return found


@cache
def _tests(folders: tuple[str, ...]) -> list[Test]:
    paths = {path for folder in folders for path in (REPOSITORY / folder).glob("**/test_*.py")}
    return [test for path in sorted(paths) for test in _of(path)]


def _of(path: Path) -> Iterator[Test]:
    source = path.read_text()
    lines = source.splitlines()
    module = ast.parse(source)
    # What stands beside the functions, samples and lists of cases, belongs to those that name it.
    beside: dict[str, str] = {}
    for node in module.body:
        text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        names = [node.name] if isinstance(node, ast.FunctionDef) else []
        names += [target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)]
        beside |= {name: text for name in names if not name.startswith("test_")}
    relative = path.relative_to(REPOSITORY).as_posix()
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            text = "\n".join(lines[first - 1 : node.end_lineno])
            used = [beside[name] for name in sorted(set(re.findall(r"\w+", text)) & beside.keys())]
            yield Test(relative, node.name, frozenset(_words("\n".join([relative, text, *used]))))


def _words(text: str) -> Iterator[str]:
    for word in re.findall(r"[A-Za-z_]\w+", text):
        yield word
        yield from (part for part in word.lower().split("_") if len(part) > 3 and part != word)
