"""A page of HTML around one table: rows that open to code and diffs, marks for each Megatron, filters.

It is one file without network; without JavaScript only search, filters and keys are missing.
"""

from __future__ import annotations

import base64
import hashlib
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from string import Template

from mcore_unpatch.records import record
from mcore_unpatch.repository.paths import shown
from mcore_unpatch.say.effects import DIFFERS, NOT_REACHED, OK, RAISES, UNKNOWN
from mcore_unpatch.say.other_model import ACTS, DEAD

MARKS = {RAISES: "bad", UNKNOWN: "warn", DIFFERS: "warn", OK: "good", NOT_REACHED: "plain"}
_LOOKS = MARKS | {ACTS: "good", DEAD: "bad", "": "plain"}  # what else stands in a cell is a warning
VERBS = ("moves", "goes", "by hand", "stays", "done")
_KEYS = "j and k move, Enter opens, / searches"


@record
class Pane:
    """A piece of code or a diff below a row."""

    head: str
    text: str
    is_diff: bool = False


@record
class PageRow:
    """One place: what it patches or uses, a mark for each column, what becomes of it; the rest opens below it.

    origin: whether it is a copy of upstream's code. folder: what it is filtered by.
    """

    name: str
    place: str
    marks: tuple[str, ...]
    verb: str = ""
    said: tuple[str, ...] = ()
    panes: tuple[Pane, ...] = ()
    link: str = ""
    folder: str = ""
    origin: str = ""

    @property
    def worst(self) -> str:
        """The mark that it is filtered by."""
        return min((one for one in self.marks if one in MARKS), key=list(MARKS).index, default=OK)


def page(title: str, summary: str, columns: Sequence[str], rows: Sequence[PageRow]) -> str:
    """The whole page; the rows stand in the order of their urgency."""
    own = files("mcore_unpatch.report")
    empty, style, script = (own.joinpath(f"page.{end}").read_text("utf-8") for end in ("html", "css", "js"))
    style = f"\n{style}main {{ --columns: {len(columns)}; }}\n"
    return Template(empty).substitute(
        title=_text(title),
        summary=_sentence(summary),
        form="\n".join(_form(rows)),
        head="".join(_head(columns)),
        rows="\n".join(line for row in rows for line in _row(row, columns)),
        policy=_policy(style, f"\n{script}"),
        style=style,
        script=f"\n{script}",
    )


def _policy(style: str, script: str) -> str:
    """Nothing but these two may act in the page, and nothing is fetched or sent."""
    ours = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    named = " ".join(f"{kind}-src 'sha256-{digest}';" for kind, digest in zip(("style", "script"), ours, strict=True))
    return f"default-src 'none'; {named} base-uri 'none'; form-action 'none'"


def _form(rows: Sequence[PageRow]) -> Iterator[str]:
    """Search and filters, each with how many rows it is for."""
    yield f'<form role="search"><input type="search" name="search" placeholder="Search" title="{_KEYS}">'
    marks, verbs = Counter(row.worst for row in rows), Counter(row.verb for row in rows)
    for name, legend, number in (("mark", "What happens", marks), ("verb", "What becomes of it", verbs)):
        yield f"<fieldset><legend>{legend}</legend>"
        for key in [one for one in (*MARKS, *VERBS, "") if number[one]]:
            box = f'<input type="checkbox" name="{name}" value="{_text(key)}" checked>'
            yield f'<label class="{MARKS.get(key, "plain")}">{box} {_text(key or "a use")} {number[key]}</label>'
        yield "</fieldset>"
    yield from _select("folder", "All folders", (row.folder for row in rows))
    yield from _select("origin", "Ours and copies", (row.origin for row in rows))
    yield '<span id="shown" class="soft" aria-live="polite"></span></form>'


def _select(name: str, every: str, values: Iterable[str]) -> Iterator[str]:
    number = Counter(values)
    if len(number) > 1:
        each = (f'<option value="{_text(key)}">{_text(key)} ({number[key]})</option>' for key in sorted(number))
        head = f'<select name="{name}" aria-label="{every}"><option value="">{every}</option>'
        yield f"{head}{''.join(each)}</select>"


def _head(columns: Sequence[str]) -> Iterator[str]:
    yield '<div class="head"><span>what</span>'
    yield from (f"<span>{_text(column)}</span>" for column in columns)
    yield "<span></span></div>"


def _row(row: PageRow, columns: Sequence[str]) -> Iterator[str]:
    facts = {"mark": row.worst, "verb": row.verb, "folder": row.folder, "origin": row.origin}
    told = " ".join(f'data-{name}="{_text(value)}"' for name, value in facts.items())
    yield f"<details {told}>"
    place = _text(row.place)
    if row.link:
        place = f'<a href="{escape(row.link)}" rel="noreferrer">{place}</a>'
    yield f'<summary><span class="what">{_text(row.name)} <span class="place">{place}</span></span>'
    for column, mark in zip(columns, row.marks, strict=True):
        looks = _LOOKS.get(mark, "warn")
        yield f'<span class="{looks}" data-on="{_text(column)}">{_text(mark)}</span>'
    yield f'<span class="plain">{_text(row.verb)}</span></summary><div class="inside">'
    if row.said:
        yield f"<ul>{''.join(f'<li>{_sentence(line)}</li>' for line in row.said)}</ul>"
    if row.panes:
        yield '<div class="panes">'
        for pane in row.panes:
            yield f"<figure><figcaption>{_text(pane.head)}</figcaption><pre>{''.join(_code(pane))}</pre></figure>"
        yield "</div>"
    yield "</div></details>"


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
