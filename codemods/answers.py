"""The changes of codemods that answer findings one by one: with `fix`, and file by file."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence

from mcore_unpatch.codemods import registry, standing
from mcore_unpatch.codemods.changes import Asked, Reason
from mcore_unpatch.codemods.codemod import AddImport, Codemod, Match, MoveImport
from mcore_unpatch.codemods.edits import Options, Remark
from mcore_unpatch.codemods.matches import matches
from mcore_unpatch.codemods.outcome import Outcome
from mcore_unpatch.codemods.source import Source, Span
from mcore_unpatch.codemods.standing import Staying
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.findings import Finding
from mcore_unpatch.scanner.sources.parsing import Unreadable


def answer(
    bench: Workbench,
    proposing: Workbench,
    findings: Sequence[Finding],
    options: Options,
    taken: Sequence[Asked],
    staying: Staying,
) -> Outcome:
    """The changes for findings that are still open; `proposing` has the imports of changes that are only shown."""
    found = Outcome()
    spans: defaultdict[str, list[Span]] = defaultdict(list)
    for one in taken:
        spans[one.path].append(one.touches)
    for codemod in registry.codemods():
        if type(codemod).fix is Codemod.fix:
            continue
        with registry.blaming(codemod):
            for finding, source, match in _places(codemod, bench, findings):
                hooked = codemod.needs_hook or match.needs_hook
                below = staying.below(finding.path, standing.HOOK) if hooked else None
                if below is not None:
                    text = f"Not rewritten: {standing.because(below, 'the hook goes through it')}."
                    found.remarks.append(Remark(finding.path, finding.line, finding.rule, "by-hand", text))
                    continue
                reason = Reason(finding.rule, match.safety or codemod.safety, match.instead, finding_line=finding.line)
                wanted = list(codemod.fix(source, match))
                added = [change for change in wanted if isinstance(change, AddImport)]
                moved = [change for change in wanted if isinstance(change, MoveImport)]
                others = (change for change in wanted if not isinstance(change, AddImport | MoveImport))
                asked = [Asked(source, change, reason) for change in others]
                touched = [*(one.touches for one in asked), *(source.span(move.node) for move in moved)]
                if not touched or _overlap(touched, spans[finding.path]):
                    continue
                spans[finding.path] += touched
                found.asked += asked
                where = bench if options.applies(reason) else proposing
                for new in added:
                    where.imports(finding.path).add(new.module, [new.name], reason)
                for move in moved:
                    where.imports(finding.path).move(move.node, set(move.names), move.module, reason)
                if options.applies(reason):
                    found.removes.append(finding)
    return found


def _places(codemod: Codemod, bench: Workbench, findings: Sequence[Finding]) -> Iterator[tuple[Finding, Source, Match]]:
    """The findings that a codemod may answer, each with its file and its place in it."""
    own = {rule.code for rule in codemod.rules}
    files: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.rule in own.union(codemod.answers) and finding.path in bench.editable:
            files[finding.path].append(finding)
    for path, group in files.items():
        try:
            source = bench.source(path)
        except (Unreadable, OSError):
            continue
        known = {_place(finding): match for finding, match in matches(codemod, source)} if own else {}
        for finding in group:
            match = known.get(_place(finding)) if finding.rule in own else _at(source, finding)
            if match is not None:
                yield finding, source, match


def _place(finding: Finding) -> tuple[int, int, str, str]:
    """What tells findings of a file apart, whatever was said of them since they were found."""
    return finding.line, finding.column, finding.rule, finding.target


def _at(source: Source, finding: Finding) -> Match | None:
    """The outermost node where a finding of the scanner begins."""
    for node in source.nodes:  # those around another come first
        if isinstance(node, ast.stmt | ast.expr) and (node.lineno, node.col_offset) == (
            finding.line,
            finding.column - 1,
        ):
            instead = finding.replacement or finding.message
            return Match(node, finding.rule, finding.target, finding.message, instead)
    return None


def _overlap(some: Sequence[Span], others: Sequence[Span]) -> bool:
    return any(one.start < other.end and other.start < one.end for one in some for other in others)
