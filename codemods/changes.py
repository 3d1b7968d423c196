"""Changes of one file, and their last step before they are edits: none of them overlap."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mcore_unpatch.codemods.source import Span


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes to be replaced, and the statement it is about."""

    span: Span
    text: str
    node: ast.stmt | None = None


def settle(changes: Iterable[Change]) -> list[Change]:
    """The same changes without overlaps.

    Lines that go may share a line ending with each other or with an insertion, at the end of a file without a newline.
    """
    ordered = sorted(changes, key=lambda change: change.span)
    gone: list[Change] = []
    for change in ordered:
        if not change.text and gone and change.span.start < gone[-1].span.end:
            end = max(gone[-1].span.end, change.span.end)
            gone[-1] = replace(gone[-1], span=Span(gone[-1].span.start, end))
        elif not change.text:
            gone.append(change)
    settled = list(gone)
    for change in (change for change in ordered if change.text):
        around = next((one.span for one in gone if one.span.start < change.span.start < one.span.end), None)
        if around is not None and change.span.start == change.span.end:
            change = replace(change, span=Span.at(around.start), text="\n" + change.text.removesuffix("\n"))
        settled.append(change)
    return settled
