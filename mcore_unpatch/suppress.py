"""`# unpatch: ignore[RULE]` on the line of a finding or above it; one that suppresses nothing is a finding itself."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mcore_unpatch.findings import Finding
from mcore_unpatch.paths import is_test
from mcore_unpatch.rules import UNUSED_IGNORE
from mcore_unpatch.scanner.engine import IGNORE_MARK
from mcore_unpatch.scanner.source import Unreadable, decode

_COMMENT = re.compile(r"#\s*unpatch:\s*ignore(?:\[([^\]]*)\])?")


@dataclass(slots=True)
class Ignore:
    """One comment: its line, the codes it names (none: all), whether it stands alone, and which codes it served."""

    line: int
    column: int
    codes: tuple[str, ...]
    alone: bool
    text: str
    used: set[str] = field(default_factory=set)

    def covers(self, code: str) -> bool:
        """Whether the comment names a rule, its family, or everything."""
        return not self.codes or any(code.startswith(prefix) for prefix in self.codes)


def comments(data: bytes) -> list[Ignore]:
    """The ignore comments of a Python file; none if it cannot be tokenized."""
    if IGNORE_MARK not in data:
        return []
    found: list[Ignore] = []
    try:
        text = decode(data)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and (match := _COMMENT.search(token.string)):
                codes = tuple(part.strip().upper() for part in (match[1] or "").split(",") if part.strip())
                line, column = token.start
                alone = not token.line[:column].strip()
                found.append(Ignore(line, column + 1, codes, alone, token.line.rstrip("\r\n")))
    except (Unreadable, tokenize.TokenError, SyntaxError, IndentationError):
        return found
    return found


def settle(findings: Iterable[Finding], marked: Iterable[str], read: Callable[[str], bytes]) -> list[Finding]:
    """Findings without the suppressed ones, and with one for each idle comment; `marked` files may hold comments."""
    ignores = {path: comments(read(path)) for path in marked}
    return apply(findings, ignores) + unused(ignores)


def apply(findings: Iterable[Finding], ignores: dict[str, list[Ignore]]) -> list[Finding]:
    """Findings without the suppressed ones; `ignores` holds the comments by path and notes which were used."""
    kept = []
    for finding in findings:
        comment = _suppressing(finding, ignores.get(finding.path, []))
        if comment is None:
            kept.append(finding)
        else:
            comment.used.add(finding.rule)
    return kept


def _suppressing(finding: Finding, comments_of_file: list[Ignore]) -> Ignore | None:
    by_line = {comment.line: comment for comment in comments_of_file}
    above = finding.line - 1
    while (comment := by_line.get(above)) is not None and comment.alone:
        if comment.covers(finding.rule):
            return comment
        above -= 1
    for line in range(finding.line, finding.end_line + 1):
        comment = by_line.get(line)
        if comment is not None and not comment.alone and comment.covers(finding.rule):
            return comment
    return None


def unused(ignores: dict[str, list[Ignore]]) -> list[Finding]:
    """A finding for every comment, or code in it, that suppressed nothing."""
    found = []
    for path, file_comments in ignores.items():
        for comment in file_comments:
            idle = [code for code in comment.codes if not any(used.startswith(code) for used in comment.used)]
            if comment.used and not idle:
                continue
            what = f"`ignore[{', '.join(idle)}]`" if idle else "`ignore`"
            found.append(_unused(path, comment, f"{what} suppresses nothing here; remove it"))
    return found


def _unused(path: str, comment: Ignore, message: str) -> Finding:
    return Finding(
        rule=UNUSED_IGNORE,
        path=path,
        line=comment.line,
        column=comment.column,
        end_line=comment.line,
        target="",
        shape="string-target",  # a comment has no shape; the JSON interface wants one of its names
        seam="none",
        confidence="certain",
        temporary=False,
        fix=None,
        message=message,
        replacement=None,
        in_test=is_test(path),
        source=comment.text,
    )
