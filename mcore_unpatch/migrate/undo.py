"""Take back the last migration, exactly, or say why that cannot be."""

from __future__ import annotations

from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate import files, journal, transaction
from mcore_unpatch.migrate.journal import Journal, NewContent
from mcore_unpatch.migrate.lock import exclusive
from mcore_unpatch.migrate.recovery import recover
from mcore_unpatch.migrate.state import State, interrupted, locate
from mcore_unpatch.repository.discover import project_root
from mcore_unpatch.repository.paths import from_here, shown


def undo(folder: Path) -> list[str]:
    """Give the files of the last migration, finished or killed, their original content; the paths of them.

    Raises `UsageError`, with nothing written, if there is none or if one of its files has changed since.
    """
    top = project_root(folder.resolve())
    state = locate(top)
    state.refuse_inside_work_tree()
    with exclusive(state.lock_file):
        half_done = interrupted(top)
        half_undone = [state for state in half_done if state.load().undoing]
        restored = recover(top)
        if half_done and not half_undone:
            return restored
        # An undo that was killed began by what it left: all of its files migrated again.
        return [path for one in half_undone or [state] for path in _undo(one)]


def _undo(state: State) -> list[str]:
    token = state.load().last
    if token is None:
        raise UsageError(f"Nothing to undo in {shown(state.base)}.")
    rewrites = _reversed(journal.load(state, token))
    transaction.write(state, rewrites, remember=False)
    return [item.path for item in rewrites]


def written_by_last(state: State) -> set[str]:
    """The files that are as the last migration left them."""
    token = state.load().last
    if token is None:
        return set()
    try:
        return {item.path for item in _reversed(journal.load(state, token))}
    except UsageError:  # one of them has changed since
        return set()


def _reversed(last: Journal) -> list[NewContent]:
    rewrites: list[NewContent] = []
    changed: list[str] = []
    for index, entry in enumerate(last.entries):
        place = from_here(last.state.base / entry.path)
        try:
            current = files.content_of(last.target(index))
            if current is None or files.digest(current) != entry.after:
                changed.append(f"{place} ({'deleted' if current is None else 'changed'})")
            else:
                rewrites.append(NewContent(entry.path, current, last.original_content(index)))
        except OSError as error:
            changed.append(f"{place} ({error.strerror})")
    if changed:
        listed = "".join(f"\n  {line}" for line in changed)
        raise UsageError(
            f"These files changed since the migration; nothing was restored:{listed}\n"
            f"Revert your changes and run `unpatch undo` again, or copy the originals from {shown(last.folder)}."
        )
    return rewrites
