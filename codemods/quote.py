"""Findings made of the nodes of a file: by hand, or of what a codemod finds there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.codemods.codemod import Codemod, Match
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Source
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.sources.parsing import Unreadable


def finding_at(
    source: Source,
    node: ast.stmt | ast.expr,
    rule: str,
    shape: str,
    seam: str,
    said: tuple[str, str, str],  # the target, the message and the replacement
    end: int = 0,
) -> Finding:
    """A finding at a node of a file."""
    end_line = end or node.end_lineno or node.lineno
    target, message, replacement = said
    return Finding(
        rule=rule,
        path=source.path,
        line=node.lineno,
        column=len(source.line(node.lineno).encode()[: node.col_offset].decode(errors="replace")) + 1,
        end_line=end_line,
        target=target,
        shape=shape,
        seam=seam,
        message=message,
        replacement=replacement,
        in_test=is_test(source.path),
        source="\n".join(map(source.line, range(node.lineno, end_line + 1))),
    )


def findings(codemod: Codemod, project: Repository) -> Iterator[Finding | FileError]:
    """A finding for each match in the files that say one of the codemod's words."""
    for path in project.paths:
        try:
            data = project.data(path)
            source = project.source(path) if codemod.says(data) else None
        except Unreadable as error:
            yield FileError(path, str(error))
            continue
        except OSError:
            continue
        if source is not None:
            yield from (finding for finding, _ in matches(codemod, source))


def matches(codemod: Codemod, source: Source) -> Iterator[tuple[Finding, Match]]:
    """What a codemod finds in a file, each as a finding too."""
    for match in codemod.find(source):
        seams = [rule.seam for rule in codemod.rules if rule.code == match.rule]
        if not seams:
            raise ValueError(f"it found {match.rule!r}, which is none of its rules")
        said = (match.target, match.message, match.instead)
        yield finding_at(source, match.node, match.rule, codemod.shape, seams[0], said), match
