"""What is to become of one file's imports: names that go, or come anew.

Requests are data, by whomever; `changes` makes of all of them at once what each statement is to be, in its place
unless the file's own order asks for another. The nodes of libcst are made in `names`, when a migration needs them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from mcore_unpatch.codemods.changes import Asked, Insert, Make, Reason, least_safe
from mcore_unpatch.codemods.imports.places import Import, ImportLayout, InsertionPoint
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Function, Source, Suite, first_line
from mcore_unpatch.library.syntax import dotted

if TYPE_CHECKING:
    import libcst as cst


_NEEDED = {"megatron", "mcore_unpatch"}
_IMPORTS = (ast.Import, ast.ImportFrom)


@dataclass(eq=False)
class ImportStatement:
    """An import statement that changes, or that comes (then it has no node)."""

    editor: ImportEditor
    suite: Suite
    module: str = ""
    reasons: list[Reason] = field(default_factory=list)
    node: Import | None = None
    keeps: Collection[str] = ()  # of its own names
    new: dict[str, None] = field(default_factory=dict)  # names that come

    @property
    def indent(self) -> str:
        """The white space before it."""
        return self.editor.source.indentation(self.suite[0])

    def changed(self, node: cst.CSTNode) -> Any:
        """The statement in its place."""
        from mcore_unpatch.codemods.imports.statement import changed

        return changed(self, node)

    def text(self, before: str, after: str) -> str:
        """The new statement, between the blank lines that set it apart."""
        from mcore_unpatch.codemods.imports.statement import text

        return before + text(self) + after


class ImportEditor:
    """Collects what is asked for."""

    def __init__(self, source: Source, files: Repository) -> None:
        self.source, self.files = source, files
        self._leaving: defaultdict[Import, set[str]] = defaultdict(set)
        self._wanted: dict[tuple[int, str], ImportStatement] = {}  # by suite and module
        self._reasons: defaultdict[ast.AST, list[Reason]] = defaultdict(list)  # why a statement changes

    def drop(self, node: Import, names: set[str], reason: Reason) -> None:
        """Take names away."""
        self._leaving[node] |= names
        self._reasons[node].append(reason)

    def add(self, module: str, names: list[str], reason: Reason, at: Iterable[ast.AST] = ()) -> None:
        """Import names from `module` for the code `at` some nodes."""
        for suite in _suites_for(self.source, at):
            wanted = self._wanted.setdefault((id(suite), module), ImportStatement(self, suite, module))
            wanted.reasons.append(reason)
            wanted.new |= dict.fromkeys(names)

    def changes(self) -> list[Asked]:
        """Everything that was asked for; the changes do not overlap."""
        nodes, coming = self._statements()
        gone = {node for node in self._leaving if node not in nodes}
        places = ImportLayout(self.source, self.files, gone)
        arriving = [(places.place(one.suite, one.module), one) for one in coming]
        found = [*_arrivals(arriving)]
        found += [Asked(self.source, Make(node, one.changed), least_safe(one.reasons)) for node, one in nodes.items()]
        for change in remove(self.source, gone, with_comments=True, arriving={place.line for place, _ in arriving}):
            reasons = self._reasons.get(change.node) or [reason for node in gone for reason in self._reasons[node]]
            found.append(Asked(self.source, change, least_safe(reasons)))
        return found

    def _statements(self) -> tuple[dict[Import, ImportStatement], list[ImportStatement]]:
        """What each statement is to be that changes, and those that come."""
        nodes: dict[Import, ImportStatement] = {}
        coming: list[ImportStatement] = []
        for statement in sorted(self._wanted.values(), key=attrgetter("module")):
            froms = [node for node in statement.suite if isinstance(node, ast.ImportFrom) and node.names[0].name != "*"]
            host = next((one for one in froms if "." * one.level + (one.module or "") == statement.module), None)
            if host is None:
                coming.append(statement)
            else:
                reasons = statement.reasons + self._reasons.get(host, [])
                nodes[host] = replace(statement, node=host, keeps=self._left(host), reasons=reasons)
        for node in self._leaving:
            if node not in nodes and (keeps := self._left(node)):
                suite = self.source.home[id(node)]
                nodes[node] = ImportStatement(self, suite, reasons=self._reasons[node], node=node, keeps=keeps)
        return nodes, coming

    def _left(self, node: Import) -> set[str]:
        return {alias.name for alias in node.names} - self._leaving.get(node, set())


def _arrivals(arriving: list[tuple[InsertionPoint, ImportStatement]]) -> Iterator[Asked]:
    """Those that come to one place stand sorted below each other, and are set apart together."""
    by_place = sorted(arriving, key=lambda arrival: (arrival[0].line, arrival[0].run, arrival[0].key))
    for _, group in groupby(by_place, lambda arrival: (arrival[0].line, arrival[0].run)):
        together = list(group)
        for place, statement in together:
            before = place.before if statement is together[0][1] else ""
            after = place.after if statement is together[-1][1] else ""
            insert = Insert(place.beside, place.line, partial(statement.text, before, after))
            yield Asked(statement.editor.source, insert, least_safe(statement.reasons))


def _suites_for(source: Source, nodes: Iterable[ast.AST]) -> list[Suite]:
    """The suites that an import of ours belongs to, so that each of these nodes sees its names: mostly one.

    Who has no Megatron can still import a file that asks for it in functions, or under a guard.
    """
    top = source.tree.body
    if any(map(_is_megatron, top)):
        return [top]
    shared = under_a_guard(source)
    chosen = {id(suite): suite for suite in (_inside(source, node, shared) for node in nodes)}
    inside = {
        id(suite)
        for suite in chosen.values()
        for statements in _around(source, suite[0])
        if statements is not suite and id(statements) in chosen
    }
    return [suite for suite in chosen.values() if id(suite) not in inside] or [shared or top]


def under_a_guard(source: Source) -> Suite | None:
    """The suite of module level that imports Megatron under a guard; None where only functions do, or nobody.

    Of several the one whose imports are always made: a `try` that tells what is missing and raises makes them too, and
    what stands behind it.
    """
    telling: list[Suite] = []
    always: list[Suite] = []  # the same name from one release or another
    guarded: list[Suite] = []
    for node in source.tree.body:
        if isinstance(node, ast.Try | ast.If) and any(map(_is_megatron, node.body)):
            handlers = [handler.body for handler in node.handlers] if isinstance(node, ast.Try) else []
            if handlers and all(isinstance(body[-1], ast.Raise) for body in handlers):
                telling.append(node.body)
            elif handlers and any(map(_is_megatron, (item for part in [node.orelse, *handlers] for item in part))):
                always.append(source.tree.body)
            elif not (isinstance(node, ast.If) and dotted(node.test).endswith("TYPE_CHECKING")):
                guarded.append(node.body)
    return next(iter([*telling, *always, *guarded]), None)


def _inside(source: Source, node: ast.AST, shared: Suite | None) -> Suite:
    """The suite around a node that imports Megatron before it, else the one that all share, else one with imports.

    Else its function's, in a file that imports Megatron in functions alone. Where it does so nowhere, what needs it
    was imported at the top, by another name.
    """
    around = [suite for suite in _around(source, node) if suite is not source.tree.body]
    before = {id(suite): [one for one in suite if first_line(one) <= getattr(node, "lineno", 0)] for suite in around}
    megatron = [suite for suite in around if any(map(_is_megatron, before[id(suite)]))]
    if megatron:
        return megatron[0]
    if shared:
        return shared
    importing = [suite for suite in around if any(isinstance(statement, _IMPORTS) for statement in before[id(suite)])]
    function = source.function_of(node) if any(map(_is_megatron, source.every(*_IMPORTS))) else None
    return importing[0] if importing else function.body if function else source.tree.body


def _around(source: Source, node: ast.AST) -> Iterator[Suite]:
    """The suites inside functions and of the module that a node stands in, the innermost first."""
    statements = [statement for statement in source.above(node) if isinstance(statement, ast.stmt)]
    if isinstance(node, ast.stmt) and not isinstance(node, Function):
        statements.insert(0, node)
    for statement in statements:
        if not isinstance(source.parents[statement], ast.ClassDef):
            yield source.home[id(statement)]


def _is_megatron(node: ast.stmt) -> bool:
    return any(name.partition(".")[0] in _NEEDED for name in _modules(node))


def _modules(node: ast.stmt) -> list[str]:
    """The modules that a statement imports, or imports from."""
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""] if not node.level else []
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
