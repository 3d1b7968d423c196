"""Which tests are nearest to a fault: those that run its lines and share its words, the rare ones above all."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tools.mutation.faults import Fault
from tools.mutation.reach import PACKAGES, REPOSITORY, running, seconds


def nearest(fault: Fault) -> tuple[list[str], bool]:
    """The tests that run the lines of a fault, the nearest and quickest first; whether any is known to."""
    sure, others, reached = running(fault.path, fault.line, fault.last_line)
    cases, surely = list(dict.fromkeys([*sure, *others])), set(map(function_of, sure))
    known = _tests()
    seen = Counter(word for words in known.values() for word in words)
    wanted = {word: weight * math.log(len(known) / seen[word]) for word, weight in _wanted(fault).items() if seen[word]}
    took = seconds()
    quickest: dict[tuple[str, str], float] = {}
    for case in cases:
        test = function_of(case)
        quickest[test] = min(took[case], quickest.get(test, took[case]))

    @cache
    def soon(test: tuple[str, str]) -> float:
        """What is as near and takes less time comes first."""
        words = known.get(test, frozenset())
        near = 2.0 if fault.path.split("/")[1].removesuffix(".py") in test[0] else 1.0
        near *= 3.0 if Path(fault.path).stem in Path(test[0]).stem else 1.0
        near *= 1.0 if test in surely else 0.4
        near *= 4.0 if words & {"check_forms", "APPROVE"} else 1.0  # all that is told is compared, in little time
        near *= 0.1 + sum(wanted.get(word, 0.0) for word in words) / math.log2(8 + len(words))
        return float(near / (0.5 + quickest[test]) ** 0.7)

    return sorted(cases, key=lambda case: (-soon(function_of(case)), took[case])), reached


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
def _tests() -> dict[tuple[str, str], frozenset[str]]:
    """Each test function, by its file and name, with the words it is written in, those of its cases included."""
    return {test: words for path in sorted((REPOSITORY / "tests").glob("**/test_*.py")) for test, words in _of(path)}


def _of(path: Path) -> Iterator[tuple[tuple[str, str], frozenset[str]]]:
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
    alone = len(list(path.parent.glob("test_*.py"))) == 1
    data = [file.read_text() for file in sorted(path.parent.rglob("*.txt"))] if alone else []  # what it compares with
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            text = "\n".join(lines[first - 1 : node.end_lineno])
            used = [beside[name] for name in sorted(set(re.findall(r"\w+", text)) & beside.keys())]
            yield (relative, node.name), frozenset(_words("\n".join([relative, text, *used, *data])))


def _words(text: str) -> Iterator[str]:
    for word in re.findall(r"[A-Za-z_]\w+", text):
        yield word
        yield from (part for part in word.lower().split("_") if len(part) > 3 and part != word)
