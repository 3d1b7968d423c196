"""The report for people: grouped by file, the line itself quoted, what each patch can become and what migrate does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from mcore_unpatch.findings.finding import SWITCH, Finding, Report
from mcore_unpatch.findings.rules import rules
from mcore_unpatch.report import screen
from mcore_unpatch.report.counts import group_of, groups, subjects
from mcore_unpatch.report.lines import Line, count, width, wrapped

_PATCH_FILE, _MOST_NAMED = "patch-file", 6
_SEAM_STYLE = {"value-head": "yellow", "none": "red"}
_WORST = 3  # that are shown where there is no baseline
_QUOTED_LINES, _DIFF_LINES = 3, 40
_DIFF_STYLE = {"+": "green", "-": "red", "@": "cyan"}
_VERDICT_STYLE = {"rewrite": "green", "delete": "green", "steps": "yellow"}


def lines(report: Report) -> Iterator[Line]:
    """The report, line by line: all findings, then the screen of a scan, or the last lines of a gate."""
    if not report.files_scanned and not report.findings:
        yield from wrapped(f"No Python file and no patch file to read in {report.from_here('')}", 0, "", "yellow")
        return
    if not report.findings:
        scanned = count(report.files_scanned, "file")
        yield [(f"No {report.only}{' ' * bool(report.only)}patch of Megatron Core found; {scanned} scanned.", "green")]
        if report.fixes_known:  # a scan, not a gate
            yield from wrapped("unpatch upgrade, for what else is used of Megatron", 0, "Next: ", "bold")
        return
    yield from _in_full(report.findings, report)
    yield from screen.lines(report, places=0) if report.fixes_known else _summary(report)


def _in_full(findings: list[Finding], report: Report) -> Iterator[Line]:
    """Every finding by its file; of patch files that say the same, one."""
    files = {path: list(group) for path, group in groupby(findings, key=lambda finding: finding.path)}
    alike: dict[object, list[str]] = {}
    for path, inside in files.items():
        # What two patch files have in common if one entry does for both.
        content = tuple((finding.touches, finding.rule, finding.message, finding.evidence) for finding in inside)
        alike.setdefault(content if inside[0].shape == _PATCH_FILE else path, []).append(path)
    for first, *others in alike.values():
        yield from ([(report.from_here(path), "bold")] for path in (first, *others))
        told = _patch_file if files[first][0].shape == _PATCH_FILE else _finding
        yield from (line for finding in files[first] for line in told(finding))
        yield []


def _finding(finding: Finding) -> Iterator[Line]:
    yield from _head(finding)
    quoted = finding.source.split("\n")
    for offset, text in enumerate(quoted[:_QUOTED_LINES]):
        yield [(f"  {finding.line + offset:>6} | ", "dim"), (text.expandtabs(4).rstrip(), "")]
    if len(quoted) > _QUOTED_LINES:
        yield [("         | ...", "dim")]
    yield from wrapped(finding.message, 9, "= ")
    changed = finding.upstream.splitlines()
    for text in changed[:_DIFF_LINES]:
        yield [(f"         {text}", _DIFF_STYLE.get(text[:1], ""))]
    if len(changed) > _DIFF_LINES:
        yield [(f"         ... and {len(changed) - _DIFF_LINES} more lines of the diff", "dim")]
    if finding.instead and finding.instead.lower() not in finding.evidence.lower():
        yield from wrapped(finding.instead, 9, "-> ", "green")
    if finding.target and finding.evidence:
        yield from wrapped(finding.evidence, 9, f"{finding.verdict}: ", _VERDICT_STYLE.get(finding.verdict, ""))
    for group in finding.assessment.on_stacks:
        yield from wrapped(str(group), 9, "on ")
    for number, step in enumerate(finding.steps if finding.verdict == "steps" else (), 1):
        yield from wrapped(f"{number}. {step}", 11)
    if finding.related:
        yield from wrapped(", ".join(f"{item.role} {item.line}" for item in finding.related), 9, "also ", "dim")


def _patch_file(finding: Finding) -> Iterator[Line]:
    """What a patch file changes, and what becomes of it."""
    tests = "; in a test" if finding.in_test else ""
    yield from wrapped(f"{finding.message[:1].upper()}{finding.message[1:]}{tests} ({finding.rule}).", 2)
    named = [_short(name) for name in finding.touches[:_MOST_NAMED]]
    more = len(finding.touches) - len(named)
    yield from wrapped(", ".join(named) + (f" and {more} more" if more > 0 else ""), 4)
    yield from wrapped(finding.evidence, 2, f"{finding.verdict}: ", _VERDICT_STYLE.get(finding.verdict, ""), hang=4)


def _short(name: str) -> str:
    parts = name.split(".")
    return ".".join(parts[-2:]) if len(parts) > 1 and parts[-2].lstrip("_")[:1].isupper() else parts[-1]


def _head(finding: Finding) -> Iterator[Line]:
    """Place, rule, target and what to know of it; a long target has a line of its own."""
    unsure = finding.confidence if finding.confidence != "certain" else ""
    words = ("temporary" * finding.temporary, unsure, "in a test" * finding.in_test)
    place: Line = [(f"  {finding.line}:{finding.column}", "cyan"), (f"  {finding.rule}", "bold red")]
    tags: Line = [(f"  [{finding.seam}]", _SEAM_STYLE.get(finding.seam, "green"))]
    tags += [(f"  {word}", "dim") for word in filter(None, words)]
    target = finding.subject or rules()[finding.rule].name
    whole = [*place, (f"  {target}", ""), *tags]
    if sum(len(text) for text, _ in whole) <= width():
        yield whole
    else:
        yield [*place, *tags]
        yield [(f"         {target}", "")]


def _summary(report: Report) -> Iterator[Line]:
    """The last lines of a gate: what was scanned, how many patches and uses there are, and how many in tests."""
    yield [(f"Scanned {count(report.files_scanned, 'file')}.", "dim")]
    for judged in report.judged:
        yield from wrapped(str(judged), 0)
    yield from wrapped(f"Found {'new: ' if report.only == 'new' else ''}{subjects(report.findings)}.", 0)
    others = {finding.shape for finding in groups(report.findings)["other"]}
    patches = [finding for finding in report.findings if group_of(finding) != "other"]
    if SWITCH in others:
        yield from wrapped("`--ignore MCU805` accepts what is switched off, once it is reviewed.", 0)
    if "pin" in others:
        stacks = [stack for judged in report.judged for stack in judged.stacks]
        to = f" --to {stacks[0].name}" if len(stacks) == 1 else ""
        told = f"`unpatch upgrade{to}` says what it means for each patch; once adapted, `unpatch pin`"
        yield from wrapped(told, 0, "Next: ", "bold")
    elif patches:
        yield from _accepting(patches, report)


def _accepting(patches: list[Finding], report: Report) -> Iterator[Line]:
    """How what is found is accepted from now on."""
    told, them = "`unpatch check --write-baseline`", "it" if len(patches) == 1 else "them"
    if any(patch.can_be_pinned for patch in patches):
        told = f"`{screen.pin_command(report.judged)}`, then {told} for what cannot be pinned"
    else:
        told += f", until {'it is' if len(patches) == 1 else 'they are'} gone"
    yield from wrapped(told, 0, f"To keep {them}: ", "bold")


def without_baseline(report: Report) -> Iterator[Line]:
    """A gate that nothing was accepted for yet: how much there is, the worst of it, and how to begin."""
    grouped = groups(report.findings)
    patches = [finding for finding in report.findings if group_of(finding) != "other"]
    if len(patches) <= _WORST:
        yield from lines(report)
        return
    yield from _in_full(grouped["other"], report)  # what is wrong with the gate itself
    yield [(f"{subjects(report.findings)}, in {count(report.files_scanned, 'file')} read.", "bold")]
    yield []
    yield from screen.most_urgent(grouped["code"] or patches, report, _WORST)
    yield []
    yield from _accepting(patches, report)
    yield from wrapped("unpatch scan --verbose", 0, "All:  ", "bold")


def concise(report: Report) -> Iterator[Line]:
    """`path:line:column CODE message`, by file and line."""
    for finding in report.findings:
        place = f"{report.from_here(finding.path)}:{finding.line}:{finding.column}"
        yield [(place, "cyan"), (f" {finding.rule} ", "bold red"), (" ".join(finding.message.split()), "")]
