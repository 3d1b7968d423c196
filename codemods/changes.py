"""Edits of one file in the making: what each is for, and the last step, after which none of them overlap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mcore_unpatch.codemods.edits import Applicability, Edit
from mcore_unpatch.codemods.source import Source, Span


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes to be replaced."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Reason:
    """What an edit is for, as people are told, and whether it takes their consent."""

    rule: str
    applicability: Applicability
    title: str
    notes: tuple[str, ...] = ()
    finding_line: int = 0

    def edit(self, source: Source, span: Span, text: str) -> Edit:
        """An edit made for this reason."""
        level, notes, line = self.applicability, self.notes, self.finding_line
        start, end, new = span.start, span.end, source.encode(text)
        return Edit(source.path, self.rule, level, start, end, new, self.title, notes, line)


_LEAST_SAFE_FIRST: tuple[Applicability, ...] = ("display", "unsafe", "safe")


def least_safe(reasons: Iterable[Reason]) -> Reason:
    """The reason that speaks for an edit that has several."""
    return min(reasons, key=lambda reason: (_LEAST_SAFE_FIRST.index(reason.applicability), reason.rule))


def settle(edits: Iterable[Edit], data: bytes) -> list[Edit]:
    """The same edits, with neighbouring lines that go as one, and a missing newline at the end of the file kept."""
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    new = [edit for edit in ordered if edit.replacement]
    inserted = {edit.start for edit in new if edit.start == edit.end}
    gone: list[Edit] = []
    for edit in (edit for edit in ordered if not edit.replacement):
        last = gone[-1] if gone else None
        touches = last is not None and edit.start <= last.end and edit.start not in inserted
        if last is not None and touches and edit.applicability == last.applicability:
            gone[-1] = replace(last, end=max(last.end, edit.end))
        else:
            gone.append(edit)
    if gone and gone[-1].end == len(data) and not data.endswith((b"\n", b"\r")):
        start = gone[-1].start
        if start in inserted:  # the last of what comes there is the new last line
            index = max(index for index, one in enumerate(new) if one.start == one.end == start)
            new[index] = replace(new[index], replacement=_without_ending(new[index].replacement))
        else:
            gone[-1] = replace(gone[-1], start=len(_without_ending(data[:start])))
    return [*gone, *new]


def _without_ending(text: bytes) -> bytes:
    return text.removesuffix(b"\n").removesuffix(b"\r")
