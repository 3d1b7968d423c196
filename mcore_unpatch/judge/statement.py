"""What the judge says: one sentence at a time, each with its evidence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mcore_unpatch.library.model import Model, Usage
from mcore_unpatch.records import field, record

if TYPE_CHECKING:
    from mcore_unpatch.judge.demands import Demand

RAISES, CHANGES, STOPS, SPEED, IDLE = "raises", "changes", "stops", "speed", "idle"
SILENT = (CHANGES, STOPS)  # other results, and no error
_REMARKS = re.compile(r"; (?=[^`]*(?:`[^`]*`[^`]*)*\Z)")  # not within what is quoted


@record
class Statement:
    """One thing that a release does to a patch, or to a line that uses the library.

    kind: it raises; something changes without an error, in numbers or in speed alone; the older release calls it and
    the newer one does not; it is never called.
    text: as a sentence without its full stop.
    line: where, in `path`. when: on import, when the patch is installed, or when it is called. caller: who triggers it.
    """

    kind: str
    text: str
    exception: str = ""
    path: str = ""
    line: int = 0
    when: str = ""
    caller: str = ""
    also: tuple[str, ...] = field(default=(), kw_only=True)  # further callers
    before: bool = False  # of two releases: the older one does it too
    trigger: str = ""  # `when the file is imported`, where the text does not say it
    instead: str = ""  # what to write in its place, as a sentence
    steps: str = ""  # of several steps between releases those it is of, where others do nothing: `from 0.16.1`
    demand: Demand | None = field(default=None, repr=False, compare=False)  # the use that it is of, if it is of one

    @property
    def sentence(self) -> str:
        """The text with what is raised, when, and what to write instead."""
        raised = f": {self.exception} {self.trigger}" if self.trigger else ""
        text, *remarks = _REMARKS.split(self.text, maxsplit=1)
        return "; ".join(part for part in (text + raised, *remarks, self.instead) if part)

    @property
    def will_raise(self) -> bool:
        """Whether the newer release raises there."""
        return self.kind == RAISES

    @property
    def name(self) -> str:
        """What of Megatron's it is about: what is used, or who calls."""
        return self.demand.name if self.demand is not None else self.caller

    def seen_from(self, path: str, line: int) -> str:
        """The sentence as it is said of a line: with its own where that is another one."""
        where = "" if self.path in ("", path) else f"{self.path}:"
        return (
            self.sentence if not where and self.line in (0, line) else f"{where or 'line '}{self.line}: {self.sentence}"
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        told = ("kind", "exception", "path", "line", "when", "caller", "before", "instead")
        return {"text": self.sentence, **{name: getattr(self, name) for name in told}}


def only_if(*usages: Usage) -> str:
    """The condition under which alone Megatron makes some calls, where all of them have the same."""
    conditions = {usage.condition for usage in usages}
    return f", only if `{usages[0].condition}`" if len(conditions) == 1 and usages[0].condition else ""


def labels(models: Sequence[Model], every: Sequence[Model] = ()) -> str:
    """Some releases in words: those that follow each other among all that are asked about by their ends."""
    names, order = (list(dict.fromkeys(model.label for model in those)) for those in (models, every or models))
    first = order.index(names[0])
    in_a_row = len(names) > 2 and order[first : first + len(names)] == names
    return f"{names[0]} to {names[-1]}" if in_a_row else ", ".join(names)
