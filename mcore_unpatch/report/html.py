"""One self-contained page for people who do not run the tool: totals, every patch, search and filter.

Everything is in the page itself; without JavaScript only search and filter are missing.
"""

from __future__ import annotations

import base64
import hashlib
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template

from mcore_unpatch.repository.paths import shown


@dataclass(frozen=True, slots=True)
class Kind:
    """A group of patches: its heading, and how it looks (bad, warn, good or plain)."""

    name: str
    look: str


@dataclass(frozen=True, slots=True)
class Pane:
    """A piece of code or a diff below a patch."""

    head: str
    text: str
    is_diff: bool = False
    is_open: bool = True


@dataclass(frozen=True, slots=True)
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
    title: str, summary: str, kinds: dict[str, Kind], cards: list[Card], marks: dict[str, Kind] | None = None
) -> str:
    """The whole page; the cards stand in the order of their urgency."""
    own = files("mcore_unpatch.report")
    empty, style, script = (f"\n{own.joinpath(f'page.{end}').read_text('utf-8')}" for end in ("html", "css", "js"))
    known = {**kinds, **(marks or {})}
    return Template(empty[1:]).substitute(
        title=_text(title),
        summary=_sentence(summary),
        form="\n".join(_form(kinds, marks or {}, cards)),
        cards="\n".join(line for card in cards for line in _card(card, known)),
        policy=_policy(style, script),
        style=style,
        script=script,
    )


def _policy(style: str, script: str) -> str:
    """Nothing but these two may act in the page, and nothing is fetched or sent."""
    ours = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    named = " ".join(f"{kind}-src 'sha256-{digest}';" for kind, digest in zip(("style", "script"), ours, strict=True))
    return f"default-src 'none'; {named} base-uri 'none'; form-action 'none'"


def _form(kinds: dict[str, Kind], marks: dict[str, Kind], cards: list[Card]) -> Iterator[str]:
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
            yield f'<label>{box}<b class="{chosen[key].look}">{number}</b> {_text(chosen[key].name)}</label>'
        yield "</fieldset>" if used else ""
    if len(groups) > 1:
        yield '<fieldset class="group"><legend>Where</legend>'
        for group, number in groups.items():
            checked = "" if group == "tests" and "code" in groups else " checked"
            box = f'<input type="checkbox" name="group" value="{_text(group)}"{checked}>'
            yield f"<label>{box}<b>{number}</b> in {_text(group.replace('_', ' '))}</label>"
        yield "</fieldset>"
    yield '<p id="shown" class="soft" aria-live="polite"></p></form>'


def _card(card: Card, kinds: dict[str, Kind]) -> Iterator[str]:
    shown = [(kinds[name].look, kinds[name].name) for name in (card.mark, card.kind) if name]
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
