"""A scan as a page of HTML to share.

It is self-contained: totals, every patch, search and filter; without JavaScript only these two are missing.
"""

from __future__ import annotations

import base64
import hashlib
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from urllib.parse import quote

from mcore_unpatch.findings.finding import Report
from mcore_unpatch.records import record
from mcore_unpatch.report.counts import EFFECTS, FATES, fate_of, group_of, urgency
from mcore_unpatch.report.lines import count
from mcore_unpatch.repository import git
from mcore_unpatch.repository.paths import shown

_REMOTE = re.compile(r"(?:(?:https?|ssh|git)://)?(?:[^@/\s]+@)?([\w.-]+)(?::\d+)?[/:]([\w./~-]+?)(?:\.git)?/?\s*")
# How what becomes of a finding looks: bad, warn, good or plain.
_LOOKS = dict.fromkeys((*FATES, *EFFECTS), "warn") | dict.fromkeys(("rewrite", "delete", "delete_by_hand"), "good")
_LOOKS |= {"kept": "plain", "breaks": "bad"}


@record
class Pane:
    """A piece of code or a diff below a patch."""

    head: str
    text: str
    is_diff: bool = False
    is_open: bool = True


@record
class Card:
    """One patch: its kind, what it replaces and where, what is said of it, and code.

    mark: another kind that a reader may want to see alone. group: where it stands; tests are folded away at first.
    """

    kind: str
    title: str
    place: str
    said: tuple[str, ...]
    panes: tuple[Pane, ...] = ()
    mark: str = ""
    group: str = "code"
    link: str = ""


def page(
    title: str, summary: str, kinds: dict[str, str], marks: dict[str, str], looks: dict[str, str], cards: list[Card]
) -> str:
    """The whole page; the cards stand in the order of their urgency. kinds and marks: what each is called."""
    own = files("mcore_unpatch.report")
    empty, style, script = (f"\n{own.joinpath(f'page.{end}').read_text('utf-8')}" for end in ("html", "css", "js"))
    return Template(empty[1:]).substitute(
        title=_text(title),
        summary=_sentence(summary),
        form="\n".join(_form(kinds, marks, looks, cards)),
        cards="\n".join(line for card in cards for line in _card(card, kinds | marks, looks)),
        policy=_policy(style, script),
        style=style,
        script=script,
    )


def _policy(style: str, script: str) -> str:
    """Nothing but these two may act in the page, and nothing is fetched or sent."""
    ours = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    named = " ".join(f"{kind}-src 'sha256-{digest}';" for kind, digest in zip(("style", "script"), ours, strict=True))
    return f"default-src 'none'; {named} base-uri 'none'; form-action 'none'"


def _form(kinds: dict[str, str], marks: dict[str, str], looks: dict[str, str], cards: list[Card]) -> Iterator[str]:
    """The totals, which filter where the script runs: what code holds by kind, and how much stands elsewhere."""
    groups = Counter(card.group for card in cards)
    inside = [card for card in cards if card.group == "code" or "code" not in groups]
    yield '<form role="search"><input type="search" name="search" placeholder="Search" aria-label="Search">'
    rows = (("only", "Show only what", marks, ""), ("kind", "What becomes of it", kinds, " checked"))
    for name, legend, chosen, checked in rows:
        used = [key for key in chosen if any(key in (card.kind, card.mark) for card in cards)]
        yield f'<fieldset class="{name}"><legend>{legend}</legend>' if used else ""
        for key in used:
            number = sum(key in (card.kind, card.mark) for card in inside)
            box = f'<input type="checkbox" name="{name}" value="{_text(key)}"{checked}>'
            yield f'<label>{box}<b class="{looks[key]}">{number}</b> {_text(chosen[key])}</label>'
        yield "</fieldset>" if used else ""
    if len(groups) > 1:
        yield '<fieldset class="group"><legend>Where</legend>'
        for group, number in groups.items():
            checked = "" if group == "tests" and "code" in groups else " checked"
            box = f'<input type="checkbox" name="group" value="{_text(group)}"{checked}>'
            yield f"<label>{box}<b>{number}</b> in {_text(group.replace('_', ' '))}</label>"
        yield "</fieldset>"
    yield '<p id="shown" class="soft" aria-live="polite"></p></form>'


def _card(card: Card, kinds: dict[str, str], looks: dict[str, str]) -> Iterator[str]:
    shown = [(looks[name], kinds[name]) for name in (card.mark, card.kind) if name]
    yield f'<article data-kind="{_text(card.kind)}" data-mark="{_text(card.mark)}" data-group="{_text(card.group)}">'
    yield f"<header><h2>{_text(card.title)}</h2>"
    place = _text(card.place)
    if card.link:
        place = f'<a href="{escape(card.link)}" rel="noreferrer">{place}</a>'
    yield f'<span class="place">{place}</span>'
    badges = "".join(f'<span class="badge {look}">{_text(name)}</span>' for look, name in shown)
    yield f'<span class="badges">{badges}</span></header>'
    if card.said:
        yield f"<ul>{''.join(f'<li>{_sentence(line)}</li>' for line in card.said)}</ul>"
    if card.panes:
        yield '<div class="panes">'
        for pane in card.panes:
            yield f"<details{' open' if pane.is_open else ''}><summary>{_text(pane.head)}</summary>"
            yield f"<pre>{''.join(_code(pane))}</pre></details>"
        yield "</div>"
    yield "</article>"


def _code(pane: Pane) -> Iterable[str]:
    looks = {"+": "plus", "-": "minus"} if pane.is_diff else {}
    for line in textwrap.dedent(pane.text).split("\n"):
        look = "" if line.startswith(("--- ", "+++ ")) else looks.get(line[:1], "")
        yield f'<span class="{look}">{_text(line.expandtabs(4))}</span>'


def _sentence(text: str) -> str:
    """A sentence whose `names` are set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", _text(text))


def _text(text: str) -> str:
    return escape(shown(text))


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
        if finding.upstream:
            panes.append(Pane("what Megatron changed", finding.upstream, True))
        if finding.fix and finding.path in diffs:
            panes.append(Pane("what migrate would change in this file", diffs[finding.path], True, is_open=False))
        place = f"{report.from_here(finding.path)}:{finding.line}"
        link = origin.link(report.from_top(finding.path), finding.line)
        about = (finding.subject or finding.rule, place, tuple(said), tuple(panes))
        cards.append(Card(fate_of(finding), *about, finding.effect, group_of(finding), link))
    return page("Patches of Megatron Core", head_of(report, origin), FATES, EFFECTS, _LOOKS, cards)


def head_of(report: Report, origin: Origin) -> str:
    """What the page is about: the repository, its commit, the day, what was read and for which releases."""
    today = date.today()
    read = f"{origin}, {today.day} {today:%B %Y}: {count(report.files_scanned, 'file')} read."
    return " ".join([read, *map(str, report.judged)])


@record
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
