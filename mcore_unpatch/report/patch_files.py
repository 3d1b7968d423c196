"""Patch files for people: one entry for each, with the definitions that it touches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.report.lines import Line, count, wrapped

SHAPE = "patch-file"
_MOST_NAMED = 6


def is_patch_file(findings: Sequence[Finding]) -> bool:
    """Whether the findings of a file are those of a patch file."""
    return findings[0].shape == SHAPE


def same(findings: Sequence[Finding]) -> tuple[object, ...]:
    """What two patch files have in common if one entry does for both."""
    return tuple((one.touches, one.rule, one.message, one.evidence) for one in findings)


def entry(findings: Sequence[Finding]) -> Iterator[Line]:
    """What a patch file changes, and what becomes of it."""
    for finding in findings:
        tests = "; in a test" if finding.in_test else ""
        yield from wrapped(f"{finding.message[:1].upper()}{finding.message[1:]}{tests} ({finding.rule}).", 2)
        shown = [_short(name) for name in finding.touches[:_MOST_NAMED]]
        more = len(finding.touches) - len(shown)
        yield from wrapped(", ".join(shown) + (f" and {count(more, 'more', 'more')}" if more > 0 else ""), 4)
        style = {"delete": "green", "steps": "yellow"}.get(finding.verdict, "")
        yield from wrapped(finding.evidence, 2, f"{finding.verdict}: ", style, hang=4)


def _short(name: str) -> str:
    parts = name.split(".")
    return ".".join(parts[-2:]) if len(parts) > 1 and parts[-2].lstrip("_")[:1].isupper() else parts[-1]
