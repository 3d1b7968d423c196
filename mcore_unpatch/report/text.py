"""The report for people: grouped by file, the line itself quoted, what each patch can become and what migrate does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from mcore_unpatch.findings import SWITCH, Finding, Report
from mcore_unpatch.report import patch_files
from mcore_unpatch.report.lines import Line, count, show, subjects, tally, width, wrapped
from mcore_unpatch.rules import rules

_SEAM_STYLE = {"value-head": "yellow", "none": "red"}
_QUOTED_LINES = 3
_VERDICT_STYLE = {"rewrite": "green", "delete": "green", "steps": "yellow"}
# What becomes of the findings, in the last line.
_FATES = {
    "safe": "safe to migrate",
    "unsafe": "with --unsafe-fixes",
    "delete": "to delete",
    "steps": "by hand",
    "keep": "kept",
}


def write(report: Report, statistics: bool) -> None:
    """Print a report."""
    show(lines(report, statistics))


def lines(report: Report, statistics: bool) -> Iterator[Line]:
    """The report, line by line."""
    files = {path: list(group) for path, group in groupby(report.findings, key=lambda finding: finding.path)}
    alike: dict[object, list[str]] = {}
    for path, findings in files.items():
        alike.setdefault(patch_files.same(findings) if patch_files.is_patch_file(findings) else path, []).append(path)
    for first, *others in alike.values():
        yield from ([(report.from_here(path), "bold")] for path in (first, *others))
        if patch_files.is_patch_file(files[first]):
            yield from patch_files.entry(files[first])
        else:
            yield from (line for finding in files[first] for line in _finding(finding))
        yield []
    if statistics and report.findings:
        yield from _statistics(report)
        yield []
    scanned = count(report.files_scanned, "file")
    if not report.findings:
        yield [(f"No {'new ' if report.only_new else ''}patch of Megatron Core found; {scanned} scanned.", "green")]
        return
    yield [(f"Scanned {scanned}.", "dim")]
    for judged in report.judged:
        yield from wrapped(str(judged), 0)
    yield from wrapped(_summary(report), 0)


def _finding(finding: Finding) -> Iterator[Line]:
    yield from _head(finding)
    quoted = finding.source.split("\n")
    for offset, text in enumerate(quoted[:_QUOTED_LINES]):
        yield [(f"  {finding.line + offset:>6} | ", "dim"), (text.expandtabs(4).rstrip(), "")]
    if len(quoted) > _QUOTED_LINES:
        yield [("         | ...", "dim")]
    yield from wrapped(finding.message, 9, "= ")
    if finding.instead and finding.instead.lower() not in finding.evidence.lower():
        yield from wrapped(finding.instead, 9, "-> ", "green")
    if finding.target and finding.evidence:
        yield from wrapped(finding.evidence, 9, f"{finding.verdict}: ", _VERDICT_STYLE.get(finding.verdict, ""))
    for number, step in enumerate(finding.steps if finding.verdict == "steps" else (), 1):
        yield from wrapped(f"{number}. {step}", 11)
    if finding.related:
        yield from wrapped(", ".join(f"{item.role} {item.line}" for item in finding.related), 9, "also ", "dim")


def _head(finding: Finding) -> Iterator[Line]:
    """Place, rule, target and what to know of it; a long target has a line of its own."""
    words = {
        "temporary": finding.temporary,
        finding.confidence: finding.confidence != "certain",
        "in a test": finding.in_test,
    }
    place: Line = [(f"  {finding.line}:{finding.column}", "cyan"), (f"  {finding.rule}", "bold red")]
    tags: Line = [(f"  [{finding.seam}]", _SEAM_STYLE.get(finding.seam, "green"))]
    tags += [(f"  {word}", "dim") for word, on in words.items() if on]
    target = finding.target or rules()[finding.rule].name
    whole = [*place, (f"  {target}", ""), *tags]
    if sum(len(text) for text, _ in whole) <= width():
        yield whole
    else:
        yield [*place, *tags]
        yield [(f"         {target}", "")]


def fate_of(finding: Finding) -> str:
    """What becomes of a finding: a safe or unsafe rewrite, or its verdict."""
    return finding.verdict if finding.signature_fixed else finding.fix or finding.verdict


def _summary(report: Report) -> str:
    """The last line: how many patches and uses, how many of them in tests, and what becomes of them."""
    patches = [finding for finding in report.findings if finding.target and finding.shape != "pin"]
    pins = sum(finding.shape == "pin" for finding in report.findings)
    found = subjects(patches, "new " if report.only_new else "")
    switches = sum(finding.shape == SWITCH for finding in report.findings)
    if comments := len(report.findings) - len(patches) - pins - switches:
        found += f" and {count(comments, 'unused ignore comment')}"
    if pins:
        found += f" and {count(pins, 'pin')} that {'does' if pins == 1 else 'do'} not hold"
    if switches:
        found += f" and {count(switches, 'part')} of the gate switched off"
    fates = Counter(map(fate_of, patches)) if report.fixes_known else Counter()
    return tally(found, {words: fates[fate] for fate, words in _FATES.items()})


def _statistics(report: Report) -> Iterator[Line]:
    counts = Counter(finding.rule for finding in report.findings)
    for code, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        rule = rules()[code]
        yield from wrapped(f"{rule.name}: {rule.summary}", 0, f"{number:>5}  {code}  ", "bold")
