"""`# unpatch: ignore[RULE]` on the line of a finding or above it; one that suppresses nothing is a finding itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mcore_unpatch.findings.finding import Finding, switched_off
from mcore_unpatch.findings.rules import UNUSED_IGNORE
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.sources.parsing import Unreadable, decode

IGNORE_MARK = b"unpatch:"  # a file without it has no such comment
_COMMENT = re.compile(r"#\s*+unpatch:\s*+ignore(?:\[([^\]]*+)\])?")
# In time that grows with the text alone, which the standard tokenizer's does not on long lines.
_STRING_OR_COMMENT = re.compile(
    r'''"""(?:[^\\"]++|\\.|"(?!""))*+"""|"(?:[^\\"\n]++|\\.)*+"'''
    r"""|'''(?:[^\\']++|\\.|'(?!''))*+'''|'(?:[^\\'\n]++|\\.)*+'|#[^\n]*+""",
    re.DOTALL,
)


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
    try:
        text = decode(data).replace("\r\n", "\n").replace("\r", "\n")
    except Unreadable:
        return []
    ignores: list[Ignore] = []
    position, number = 0, 1
    for lexeme in _STRING_OR_COMMENT.finditer(text):
        if not lexeme[0].startswith("#") or not (match := _COMMENT.search(lexeme[0])):
            continue
        number += text.count("\n", position, lexeme.start())
        position = lexeme.start()
        start = text.rfind("\n", 0, position) + 1
        codes = tuple(part.strip().upper() for part in (match[1] or "").split(",") if part.strip())
        alone = not text[start:position].strip()
        ignores.append(Ignore(number, position - start + 1, codes, alone, text[start : lexeme.end()]))
    return ignores


def settle(
    findings: Iterable[Finding], marked: Iterable[str], read: Callable[[str], bytes], silenced: list[Finding]
) -> list[Finding]:
    """Findings without the suppressed ones, and with one for each idle comment; `marked` files may hold comments.

    `silenced` takes a finding for each that a comment suppresses.
    """
    ignores = {path: comments(read(path)) for path in marked}
    return apply(findings, ignores, silenced) + unused(ignores)


def apply(findings: Iterable[Finding], ignores: dict[str, list[Ignore]], silenced: list[Finding]) -> list[Finding]:
    """Findings without the suppressed ones; `ignores` holds the comments by path and notes which were used."""
    by_line = {path: {comment.line: comment for comment in found} for path, found in ignores.items()}
    known: dict[tuple[str, int, int, str], Ignore | None] = {}  # patches may share a statement of very many lines
    kept = []
    for finding in findings:
        key = (finding.path, finding.line, finding.end_line, finding.rule)
        if key not in known:
            known[key] = _suppressing(finding, by_line.get(finding.path, {}))
        comment = known[key]
        if comment is None:
            kept.append(finding)
        else:
            comment.used.add(finding.rule)
            short = ".".join(finding.target.split(".")[-2:])
            source = f"{comment.text}\n{finding.source}" if comment.alone else finding.source
            what = f"{finding.rule}{f' for `{short}`' if short else ''}, with a comment"
            place = (finding.path, comment.line, comment.column)
            silenced.append(switched_off(*place, source, what, in_test=finding.in_test))
    return kept


def _suppressing(finding: Finding, by_line: dict[int, Ignore]) -> Ignore | None:
    above = finding.line - 1
    while (comment := by_line.get(above)) is not None and comment.alone:
        if comment.covers(finding.rule):
            return comment
        above -= 1
    for line in range(finding.line, finding.end_line + 1) if by_line else ():
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
            about = ("", "string-target", f"{what} suppresses nothing here; remove it")  # a comment has no shape
            place = (path, comment.line, comment.column, comment.line)
            found.append(Finding(UNUSED_IGNORE, *place, *about, in_test=is_test(path), source=comment.text))
    return found
