"""The changes that a maintainer reviews one by one: the edits that need each other, as one."""

from __future__ import annotations

from dataclasses import dataclass, field

from mcore_unpatch.editing.edits import LEVELS, Edit, Level
from mcore_unpatch.migrate.outcome import Outcome


@dataclass
class CodeChange:
    """Some edits that are made together or not at all."""

    edits: list[Edit] = field(default_factory=list)
    places: dict[str, dict[int, dict[str, None]]] = field(default_factory=dict)  # titles by path and line
    levels: dict[tuple[str, int], Level] = field(default_factory=dict)

    @property
    def gain(self) -> str:
        """What is gained, in one line."""
        return next(filter(None, (edit.gain for edit in self.edits)), "")

    @property
    def notes(self) -> list[str]:
        """What there is to know of it."""
        return list(dict.fromkeys(note for edit in self.edits for note in edit.notes))

    @property
    def title(self) -> str:
        """The first line of its commit: what is gained, or what is done."""
        first = self.edits[0]
        if self.gain:
            return f"{self.gain[:1].upper()}{self.gain[1:]}"
        return f"{first.path.rpartition('/')[2]}: {first.title}"

    @property
    def message(self) -> str:
        """The rest of it: what was done where, and of which level."""
        lines = (
            f"- {path}:{line}: {'; '.join(titles)} ({self.levels[path, line]})"
            for path, parts in self.places.items()
            for line, titles in parts.items()
        )
        return "\n".join([*lines, *(f"- {note}" for note in self.notes)])


def changes(outcome: Outcome) -> list[CodeChange]:
    """The edits of a migration, those together that need each other or answer one finding; the safest first."""
    found: dict[tuple[str, ...], CodeChange] = {}
    for placed in outcome.changes:
        edit = placed.edit
        line = edit.finding_line or placed.before.line
        alone = (edit.path, edit.rule, str(edit.finding_line) if edit.finding_line else edit.title)
        key = (edit.group,) if edit.group else alone
        change = found.setdefault(key, CodeChange())
        change.edits.append(edit)
        change.places.setdefault(edit.path, {}).setdefault(line, {})[edit.title] = None
        levels = (edit.level, change.levels.get((edit.path, line), edit.level))
        change.levels[edit.path, line] = max(levels, key=LEVELS.index)
    return sorted(found.values(), key=lambda change: max(LEVELS.index(edit.level) for edit in change.edits))
