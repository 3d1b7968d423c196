"""One self-contained page for people who do not run the tool: totals, every patch, search and filter.

Everything is in the page itself; without JavaScript only search and filter are missing.
"""

from __future__ import annotations

import base64
import hashlib
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from mcore_unpatch import printable


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
    """One patch: its kind, what it replaces and where, what is said of it, and code."""

    kind: str
    title: str
    place: str
    said: tuple[str, ...]
    panes: tuple[Pane, ...] = ()


def page(title: str, summary: str, kinds: dict[str, Kind], cards: list[Card]) -> str:
    """The whole page."""
    own = files("mcore_unpatch.report")
    style, script = (f"\n{own.joinpath(f'page.{end}').read_text('utf-8')}" for end in ("css", "js"))
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">',
            f"<title>{_text(title)}</title>",
            f"<style>{style}</style></head>",
            "<body>",
            f"<h1>{_text(title)}</h1>",
            f'<p class="soft">{_sentence(summary)}</p>',
            *_totals(kinds, cards),
            *_form(kinds, cards),
            "<main>",
            *(line for card in cards for line in _card(card, kinds[card.kind])),
            "</main>",
            f"<script>{script}</script>",
            "</body></html>\n",
        ]
    )


def _policy(style: str, script: str) -> str:
    """Nothing but these two may act in the page, and nothing is fetched or sent."""
    ours = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    named = " ".join(f"{kind}-src 'sha256-{digest}';" for kind, digest in zip(("style", "script"), ours, strict=True))
    return f"default-src 'none'; {named} base-uri 'none'; form-action 'none'"


def _totals(kinds: dict[str, Kind], cards: list[Card]) -> Iterator[str]:
    yield '<ul class="totals">'
    for key, kind in kinds.items():
        number = sum(card.kind == key for card in cards)
        yield f'<li><b class="{kind.look}">{number}</b> {_text(kind.name)}</li>'
    yield "</ul>"


def _form(kinds: dict[str, Kind], cards: list[Card]) -> Iterator[str]:
    """Shown by the script alone: without it there is nothing to search with."""
    yield '<form hidden role="search"><input type="search" name="search" placeholder="Search" aria-label="Search">'
    for key, kind in kinds.items():
        if any(card.kind == key for card in cards):
            yield f'<label><input type="checkbox" value="{_text(key)}" checked> {_text(kind.name)}</label>'
    yield '<span id="shown" class="soft" aria-live="polite"></span></form>'


def _card(card: Card, kind: Kind) -> Iterator[str]:
    yield f'<article data-kind="{_text(card.kind)}">'
    yield f"<header><h2>{_text(card.title)}</h2>"
    yield f'<span class="place">{_text(card.place)}</span>'
    yield f'<span class="badge {kind.look}">{_text(kind.name)}</span></header>'
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
    return escape(printable.shown(text))
