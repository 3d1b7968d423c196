"""Where imports stand: the sections, the order and the length of lines that a file evidently keeps."""

from __future__ import annotations

import ast
import sys
from bisect import bisect_right
from collections.abc import Callable, Collection
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any

from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Function, Source, Suite, last_line
from mcore_unpatch.records import record

Import = ast.Import | ast.ImportFrom
Key = tuple[Any, ...]
FUTURE, STDLIB, THIRD_PARTY, OWN, RELATIVE = range(5)
_SORTS: tuple[Callable[[bool, str], Key], ...] = (
    lambda plain, module: (not plain, module.lower()),  # `import x` before `from x import y`
    lambda plain, module: (module.lower(), not plain),
    lambda plain, module: (),
)


@record
class InsertionPoint:
    """Before a line of a suite, and the blank lines that set apart what comes there."""

    line: int
    run: int  # where the imports begin that it comes to: of two suites that meet at a line the inner one is first
    beside: ast.stmt
    key: Key
    before: str = ""
    after: str = ""


class _ImportRun:
    """Imports of one suite with nothing else between them, by section: their kind, and blocks without a blank line."""

    def __init__(self, sections: dict[Import, tuple[int, int]]) -> None:
        for self.sort, self.is_mixed in product(_SORTS, (False, True)):
            self.keys = {
                node: ((THIRD_PARTY if self.is_mixed else kind, block), *self.sort(*_written(node)))
                for node, (kind, block) in sections.items()
            }
            if [*self.keys.values()] == sorted(self.keys.values()):
                break
        self.kept: list[tuple[Key, Import]] = []  # those that stay, and what they are sorted by
        self.sections = list(sections.values())

    def key(self, module: str, kind: int) -> Key:
        """What a new import is sorted by; it comes to the section of one that is of its kind, if it can."""
        kind = THIRD_PARTY if self.is_mixed else kind
        section = next((one for one in self.sections if one[0] == kind), (kind, self.sections[-1][1]))
        return (section, *self.sort(False, module))


class ImportLayout:
    """The imports of a file, some of which are to go."""

    def __init__(self, source: Source, files: Repository, gone: Collection[Import]) -> None:
        self.source, self.files, self.gone = source, files, gone
        self._known: dict[int, list[_ImportRun]] = {}

    def place(self, suite: Suite, module: str) -> InsertionPoint:
        """Where a new import comes to stand."""
        runs = self._runs(suite)
        if not runs:
            return self._first(suite, (module,))
        run = runs[0]
        key = run.key(module, self._kind_of(module))
        place = partial(InsertionPoint, run=next(iter(run.keys)).lineno, key=(key, module))
        index = bisect_right(run.kept, key, key=itemgetter(0))
        above, before = run.kept[index - 1] if index else (None, None)
        if not run.kept:
            above, before = key, [*run.keys][-1]
        if before and above and (above[0] == key[0] or index == len(run.kept)):
            return place(last_line(before) + 1, beside=before, before="" if above[0] == key[0] else "\n")
        below, after = run.kept[index]
        in_block = before and run.keys[before][0][1] == run.keys[after][0][1]
        apart = "" if in_block or below[0] == key[0] else "\n"
        return place(self.source.first_with_comments(after), beside=after, after=apart)

    def _first(self, suite: Suite, key: Key) -> InsertionPoint:
        """In a suite without imports: behind its docstring, else before everything."""
        start, value = suite[0], suite[0].value if isinstance(suite[0], ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return InsertionPoint(last_line(start) + 1, start.lineno, start, key, before="\n")
        after = "\n\n" if isinstance(start, ast.ClassDef | Function) else "\n"
        return InsertionPoint(self.source.first_with_comments(start), start.lineno, start, key, after=after)

    def _runs(self, suite: Suite) -> list[_ImportRun]:
        if id(suite) not in self._known:
            runs: list[dict[Import, tuple[int, int]]] = [{}]
            end = block = 0
            for node in suite:
                if isinstance(node, Import):
                    block += any(map(self.source.is_blank, range(end + 1, node.lineno)))
                    runs[-1][node] = self._kind(node), block
                elif runs[-1]:
                    runs.append({})
                end = last_line(node)
            self._known[id(suite)] = [_ImportRun(sections) for sections in runs if sections]
            for run in self._known[id(suite)]:
                run.kept = [(key, node) for node, key in run.keys.items() if node not in self.gone]
        return self._known[id(suite)]

    def _kind(self, node: Import) -> int:
        """The section an import belongs to."""
        if isinstance(node, ast.ImportFrom) and node.level:
            return RELATIVE
        return self._kind_of(_written(node)[1])

    def _kind_of(self, module: str) -> int:
        top = module.partition(".")[0]
        if not top:
            return RELATIVE
        if top in sys.stdlib_module_names:
            return FUTURE if top == "__future__" else STDLIB
        at_the_root = (f"{top}/__init__.py", f"src/{top}/__init__.py")
        path, locate = self.source.path, self.files.locate
        file = locate(path, module, 0)
        own = file is not None and not _is_part_of_a_package(file, module, path, self.files)
        return OWN if own or locate(path, top, 0) in at_the_root else THIRD_PARTY


def _written(node: Import) -> tuple[bool, str]:
    """Whether a statement is a plain `import`, and the module it names."""
    if isinstance(node, ast.Import):
        return True, node.names[0].name
    return False, "." * node.level + (node.module or "")


def _is_part_of_a_package(file: str, module: str, path: str, files: Repository) -> bool:
    """Whether a file has the name by chance: to those in `slime/utils`, `import ray` is not `slime/ray`."""
    folders = file.removesuffix(".py").removesuffix("/__init__").split("/")
    base = "/".join(folders[: -module.count(".") - 1])
    beside = path.rpartition("/")[0]  # where a script finds its neighbours, in a package too
    return base not in ("", beside) and files.locate(f"{base}/", "", 1) is not None
