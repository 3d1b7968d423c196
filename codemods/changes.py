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


def settle(changes: Iterable[Change], data: bytes) -> list[Change]:
    """The same changes, with neighbouring lines that go as one, and a missing newline at the end of the file kept."""
    ordered = sorted(changes, key=lambda change: change.span)
    new = [change for change in ordered if change.text]
    inserted = {change.span.start for change in new if change.span.start == change.span.end}
    gone: list[Change] = []
    for change in (change for change in ordered if not change.text):
        if gone and change.span.start <= gone[-1].span.end and change.span.start not in inserted:
            gone[-1] = replace(gone[-1], span=Span(gone[-1].span.start, max(gone[-1].span.end, change.span.end)))
        else:
            gone.append(change)
    if gone and gone[-1].span.end == len(data) and not data.endswith((b"\n", b"\r")):
        start = gone[-1].span.start
        if start in inserted:  # the last of what comes there is the new last line
            last = max(index for index, one in enumerate(new) if one.span == Span.at(start))
            new[last] = replace(new[last], text=new[last].text.removesuffix("\n"))
        else:
            ending = start - len(data[:start].removesuffix(b"\n").removesuffix(b"\r"))
            gone[-1] = replace(gone[-1], span=Span(start - ending, len(data)))
    return [*gone, *new]
