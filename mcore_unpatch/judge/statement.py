"""What the judge says: one sentence at a time, each with its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RAISES, CHANGES, IDLE = "raises", "changes", "idle"


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that a release does to a patch.

    kind: it raises; something changes without an error; it is never called. text: as a sentence without its full stop.
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

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        told = ("kind", "text", "exception", "path", "line", "when", "caller", "before")
        return {name: getattr(self, name) for name in told}
