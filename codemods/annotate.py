"""`# TODO(mcore-unpatch): RULE ...` above every finding with a seam that is left, once."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from textwrap import wrap

from mcore_unpatch.codemods.changes import Asked, Insert, Reason, Remove
from mcore_unpatch.codemods.workbench import Contribution, Workbench
from mcore_unpatch.editing.edits import Options
from mcore_unpatch.editing.source import Source, first_line, last_line
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.rules import find

MARK = "TODO(mcore-unpatch)"


def annotate(bench: Workbench, findings: Sequence[Finding], options: Options, taken: Sequence[Asked]) -> Contribution:
    """A comment for each finding, if comments are asked for."""
    contribution = Contribution()
    done: set[tuple[str, int, str]] = set()
    for finding in findings if options.annotate else ():
        source = bench.readable(finding.path) if finding.path in bench.editable else None
        if finding.seam == "none" or source is None:
            continue
        statement = _statement(source, finding)
        line = first_line(statement)
        start = source.line_span(line, line).start
        if (finding.path, line, finding.rule) in done or _is_annotated(source, statement, finding.rule):
            continue
        done.add((finding.path, line, finding.rule))
        if not any(asked.path == finding.path and _takes(asked, start) for asked in taken):
            text = _comment(finding, len(source.indentation(statement)))
            reason = Reason(finding.rule, "safe", f"a comment on {finding.rule}", finding_line=finding.line)
            contribution.asked.append(Asked(source, Insert(statement, line, text), reason))
    return contribution


def _takes(asked: Asked, start: int) -> bool:
    """Whether a change takes away the line that begins there."""
    first, last = asked.touches
    return first < start < last or (isinstance(asked.change, Remove) and first <= start < last)


def _comment(finding: Finding, indent: int) -> str:
    """The rule, what to do, and on a line of its own where to read on."""
    rule = find(finding.rule)
    advice = f"{MARK}: {rule.code} {finding.replacement or rule.summary}"
    lines = [
        *wrap(advice, 86 - indent, subsequent_indent="  ", break_long_words=False),
        *([f"  {rule.link}"] if rule.link else []),
    ]
    return "\n".join(f"# {line}" for line in lines)


def _statement(source: Source, finding: Finding) -> ast.stmt:
    """The innermost statement of a finding that begins its own line."""
    around = [node for node in source.every(ast.stmt) if first_line(node) <= finding.line <= last_line(node)]
    return max(
        (node for node in around if not source.line(first_line(node))[: node.col_offset].strip()), key=first_line
    )


def _is_annotated(source: Source, statement: ast.stmt, rule: str) -> bool:
    line = first_line(statement) - 1
    while line >= 1 and source.is_comment(line):
        if f"{MARK}: {rule}" in source.line(line):
            return True
        line -= 1
    return False
