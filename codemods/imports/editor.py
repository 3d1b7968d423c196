"""The imports of one file: names that go and names that come, each statement changed once for all who ask."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from mcore_unpatch.codemods.changes import Asked, Insert, Make, Reason
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.editing.source import Function, Source, Suite, last_line
from mcore_unpatch.records import record

Import = ast.Import | ast.ImportFrom
_FUTURE, _STDLIB, _OTHERS, _RELATIVE = range(4)
_NEEDED = {"megatron", "mcore_unpatch"}


@record
class _Arrival:
    """Before a line of a suite, with the blank lines that set apart what comes there."""

    line: int
    beside: ast.stmt
    before: str = ""
    after: str = ""


class ImportEditor:
    """Collects what is asked for."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._leaving: defaultdict[Import, set[str]] = defaultdict(set)
        self._coming: defaultdict[tuple[int, str], set[str]] = defaultdict(set)  # by suite and module
        self._suites: dict[int, Suite] = {}
        self._reasons: dict[object, Reason] = {}

    def drop(self, node: Import, name: str, reason: Reason) -> None:
        """Take a name away."""
        self._leaving[node].add(name)
        self._reasons.setdefault(node, reason)

    def add(self, module: str, name: str, reason: Reason, at: ast.AST) -> None:
        """Import a name for the code at a node."""
        suite = _suite_for(self.source, at)
        self._suites[id(suite)] = suite
        self._coming[id(suite), module].add(name)
        self._reasons.setdefault((id(suite), module), reason)

    def changes(self) -> Iterator[Asked]:
        """Everything that was asked for; the changes do not overlap."""
        from mcore_unpatch.codemods.imports import statement  # which loads libcst

        width = self.source.width
        arriving: list[tuple[_Arrival, str, str, Reason]] = []
        hosts: dict[Import, tuple[set[str], Reason]] = {node: (set(), self._reasons[node]) for node in self._leaving}
        for (number, module), names in self._coming.items():
            suite, reason = self._suites[number], self._reasons[number, module]
            named = [node for node in suite if isinstance(node, ast.ImportFrom) and _module(node) == module]
            host = next((node for node in named if node.names[0].name != "*"), None)
            if host is not None:
                hosts.setdefault(host, (set(), reason))[0].update(names)
                continue
            text = statement.written(module, names, width - len(self.source.indentation(suite[0])))
            arriving.append((_place(self.source, suite, module), module, text, reason))
        gone = [node for node, (new, _) in hosts.items() if not new and not self._left(node)]
        for node, (new, reason) in hosts.items():
            if node not in gone:
                yield Asked(self.source, Make(node, self._changed(node, new)), reason)
        for change in remove(self.source, gone, {place.line for place, *_ in arriving}):
            yield Asked(self.source, change, self._reasons.get(change.node) or self._reasons[gone[0]])
        arriving.sort(key=lambda one: (one[0].line, one[1].lower()))
        for _, group in groupby(arriving, lambda one: one[0].line):
            some = list(group)
            place = some[0][0]
            text = place.before + "\n".join(text for _, _, text, _ in some) + place.after
            yield Asked(self.source, Insert(place.beside, place.line, text), some[0][3])

    def _left(self, node: Import) -> set[str]:
        return {alias.name for alias in node.names} - self._leaving.get(node, set())

    def _changed(self, node: Import, new: set[str]) -> Any:
        """What makes the statement that it is to be."""
        keeps, width = self._left(node), self.source.width - len(self.source.indentation(node))

        def make(old: Any) -> Any:
            from mcore_unpatch.codemods.imports import statement

            if isinstance(node, ast.Import):
                kept = [alias for alias in old.names if alias.evaluated_name in keeps]
                return old.with_changes(names=[*kept[:-1], kept[-1].with_changes(comma=statement.NO_COMMA)])
            left = old if len(keeps) == len(node.names) else statement.keeping(old, keeps, width)
            return statement.merged(left, new, width)

        return make


def _suite_for(source: Source, node: ast.AST) -> Suite:
    """Where Megatron is imported for a node: at the top, under a guard, or in its function; else the top.

    Who has no Megatron can still import a file that asks for it in functions, or under a guard.
    """
    if any(map(_is_megatron, source.tree.body)):
        return source.tree.body
    around = [one.body for one in source.above(node) if isinstance(one, Function)]
    guarded = [one.body for one in source.tree.body if isinstance(one, ast.Try)]
    return next((body for body in (*around, *guarded) if any(map(_is_megatron, body))), source.tree.body)


def _place(source: Source, suite: Suite, module: str) -> _Arrival:
    """Where a new `from module import ...` comes to stand: sorted into its section, or as one of its own."""
    run: list[Import] = []
    for node in suite:
        if isinstance(node, Import):
            run.append(node)
        elif run:
            break
    section = _section(module)
    same = [node for node in run if _section(_module(node)) == section]
    froms = [node for node in same if isinstance(node, ast.ImportFrom)]
    larger = next((node for node in froms if _module(node).lower() > module.lower()), None)
    if larger is not None:
        return _Arrival(source.first_with_comments(larger), larger)
    if same:
        last = (froms or same)[-1]
        return _Arrival(last_line(last) + 1, last)
    later = next((node for node in run if _section(_module(node)) > section), None)
    if later is not None:
        return _Arrival(source.first_with_comments(later), later, after="\n")
    if run:
        return _Arrival(last_line(run[-1]) + 1, run[-1], before="\n")
    start = suite[0]
    if isinstance(start, ast.Expr) and isinstance(start.value, ast.Constant) and isinstance(start.value.value, str):
        return _Arrival(last_line(start) + 1, start, before="\n")
    after = "\n\n" if isinstance(start, ast.ClassDef | Function) else "\n"
    return _Arrival(source.first_with_comments(start), start, after=after)


def _section(module: str) -> int:
    top = module.partition(".")[0]
    if not top:
        return _RELATIVE
    return _FUTURE if top == "__future__" else _STDLIB if top in sys.stdlib_module_names else _OTHERS


def _module(node: Import) -> str:
    """The module that a statement imports, or imports from."""
    return "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name


def _is_megatron(node: ast.stmt) -> bool:
    return isinstance(node, Import) and _module(node).partition(".")[0] in _NEEDED
