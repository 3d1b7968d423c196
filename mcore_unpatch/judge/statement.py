"""What the judge says: one sentence at a time, each with its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RAISES, CHANGES, STOPS, SPEED, IDLE = "raises", "changes", "stops", "speed", "idle"
SILENT = (CHANGES, STOPS)  # other results, and no error


@dataclass(frozen=True, slots=True)
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
    before: bool = False  # of two releases: the older one does it too
    trigger: str = ""  # `when the file is imported`, where the text does not say it
    instead: str = ""  # what to write in its place, as a sentence

    @property
    def sentence(self) -> str:
        """The text with what is raised, when, and what to write instead."""
        raised = f": {self.exception} {self.trigger}" if self.trigger else ""
        return f"{self.text}{raised}{f'; {self.instead}' if self.instead else ''}"

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
