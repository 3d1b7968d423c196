"""A scan as a page: Markdown for a pull request, HTML to share; and where it comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from urllib.parse import quote

from mcore_unpatch.findings.finding import Finding, Report
from mcore_unpatch.report.counts import EFFECTS, FATES, fate_of, group_of, groups, urgency
from mcore_unpatch.report.html import Card, Kind, Pane, page
from mcore_unpatch.report.lines import count
from mcore_unpatch.report.screen import brief
from mcore_unpatch.repository import git

_REMOTE = re.compile(r"(?:(?:https?|ssh|git)://)?(?:[^@/\s]+@)?([\w.-]+)(?::\d+)?[/:]([\w./~-]+?)(?:\.git)?/?\s*")
_LOOKS = {"rewrite": "good", "delete": "good", "delete_by_hand": "good", "kept": "plain", "breaks": "bad"}
KINDS, MARKS = (
    {name: Kind(words, _LOOKS.get(name, "warn")) for name, words in table.items()} for table in (FATES, EFFECTS)
)
_HEADS = {
    "code": "In code",
    "tests": "In tests",
    "patch_files": "Patch files",
    "possible": "Possible ones",
    "other": "Besides",
}


def markdown(report: Report) -> str:
    """A comment: the numbers, and a table of all findings, tests folded away."""
    files = count(report.files_scanned, "file")
    lines = ["### Patches of Megatron Core", "", " ".join([f"{files} read.", *map(str, report.judged)])]
    if not report.findings:
        lines[-1] = f"No {'new ' if report.only_new else ''}patch found; {files} scanned."
    for name, findings in groups(report.findings).items():
        if findings:
            told = f" ({brief(findings)})" if report.fixes_known else ""
            lines += ["", f"<details{' open' if name == 'code' else ''}>"]
            lines += [f"<summary>{_HEADS[name]}: {len(findings)}{told}</summary>", ""]
            lines += ["| where | rule | what | |", "|---|---|---|---|"]
            lines += [_row(finding, report) for finding in sorted(findings, key=urgency)]
            lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _row(finding: Finding, report: Report) -> str:
    place = f"`{report.from_top(finding.path)}:{finding.line}`"
    means = [EFFECTS.get(finding.effect, ""), FATES[fate_of(finding)] if report.fixes_known else ""]
    cells = (place, finding.rule, finding.message, "; ".join(filter(None, means)))
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """One line without what ends a cell; what stands outside of code acts as nothing."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()).replace("|", "\\|"))
    return "".join(part if part.startswith("`") else re.sub(r"([<>*_@#\[\]])", r"\\\1", part) for part in parts)


def html(report: Report) -> str:
    """Every patch, the most urgent first, with its code and what `migrate` would change in its file."""
    diffs = report.proposed() if any(finding.fix for finding in report.findings) else {}
    origin = origin_of(Path(report.top or report.root))
    cards = []
    for finding in sorted(report.findings, key=urgency):
        said = [finding.message, f"{finding.verdict.capitalize()}: {finding.evidence}"]
        said += [f"On {group}" for group in finding.assessment.on_stacks]
        said += finding.steps if finding.verdict == "steps" else ()
        panes = [Pane(f"{finding.rule}, line {finding.line}", finding.source)]
        if finding.fix and finding.path in diffs:
            panes.append(Pane("what migrate would change in this file", diffs[finding.path], True, is_open=False))
        place = f"{report.from_here(finding.path)}:{finding.line}"
        link = origin.link(report.from_top(finding.path), finding.line)
        about = (finding.target or finding.rule, place, tuple(said), tuple(panes))
        cards.append(Card(fate_of(finding), *about, finding.effect, group_of(finding), link))
    return page("Patches of Megatron Core", head_of(report, origin), KINDS, cards, MARKS)


def head_of(report: Report, origin: Origin) -> str:
    """What the page is about: the repository, its commit, the day, what was read and for which releases."""
    today = date.today()
    read = f"{origin}, {today.day} {today:%B %Y}: {count(report.files_scanned, 'file')} read."
    return " ".join([read, *map(str, report.judged)])


@dataclass(frozen=True, slots=True)
class Origin:
    """A repository at a commit; `blob` is where its files stand, if the forge is known and has the commit."""

    name: str
    commit: str = ""
    blob: str = ""

    def link(self, path: str, line: int) -> str:
        """The address of a line, by its path from the root of the repository."""
        return f"{self.blob}/{quote(path, errors='surrogateescape')}#L{line}" if self.blob else ""

    def __str__(self) -> str:
        return f"{self.name} at commit {self.commit[:10]}" if self.commit else self.name


def origin_of(top: Path) -> Origin:
    """What git knows of a folder; only its name where it is no repository."""
    try:
        commit = git.run(top, "rev-parse", "--verify", "--quiet", "HEAD", codes=(0, 1)).decode().strip()
        remote = git.run(top, "config", "--get", "remote.origin.url", codes=(0, 1)).decode(errors="replace")
        ask = ("for-each-ref", "--count=1", f"--contains={commit}", "--format=x", "refs/remotes/origin")
        published = bool(commit and remote and git.run(top, *ask).strip())
    except git.GitError:
        return Origin(top.name)
    place = _REMOTE.fullmatch(remote.strip())
    if place is None:
        return Origin(top.name, commit)
    host, name = place.groups()
    between = next((path for forge, path in {"github": "", "gitlab": "/-"}.items() if forge in host), None)
    known = published and between is not None
    return Origin(name, commit, f"https://{host}/{name}{between}/blob/{commit}" if known else "")
