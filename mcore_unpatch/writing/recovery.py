"""Put the originals of a journal back: at once when a migration fails, or on the next run when it was killed."""

from __future__ import annotations

from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.repository.paths import shown
from mcore_unpatch.writing import files, journal
from mcore_unpatch.writing.journal import Journal, State, interrupted


def recover(top: Path) -> list[str]:
    """Take back what killed runs left half done at, above or below a folder; the files that were put back.

    Raises `UsageError` if a file was changed since and a person has to choose. The caller holds the lock.
    """
    return [path for state in interrupted(top) for path in take_back(state)]


def take_back(state: State) -> list[str]:
    """End the migration under way, if there is one, as if it had never begun; the files that were put back."""
    record = state.load()
    restored: list[str] = []
    if record.pending is not None:
        left = journal.load(state, record.pending)
        if record.replacing:
            restored = _restore(left)
        for index in range(len(left.entries)):  # what the migration left beside the files
            for name in (left.beside(index, "new"), left.beside(index, "old"), left.beside(index, "back")):
                name.unlink(missing_ok=True)
        left.undone.replace(state.file)
        files.sync_folder(state.folder)
    state.tidy()
    return restored


def _restore(left: Journal) -> list[str]:
    """Give every file of a journal its original content back; the paths that had been replaced.

    Raises `UsageError`, after doing all the others, for files that hold something else by now.
    """
    restored: list[str] = []
    problems: list[str] = []
    for index, entry in enumerate(left.entries):
        target = left.target(index)
        if left.beside(index, "new").exists():  # its turn had not come
            continue
        try:
            current = files.content_of(target)
            found = None if current is None else files.digest(current)
            if found == entry.after:
                _put_back(left, index, target)
                restored.append(entry.path)
            elif found != entry.before:
                problems.append(f"{shown(entry.path)} was changed since; its original is {shown(left.original(index))}")
        except OSError as error:
            problems.append(
                f"{shown(entry.path)}: {error.strerror or error}; its original is {shown(left.original(index))}"
            )
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise UsageError(
            f"An interrupted migration could not be undone for:{listed}\n"
            "Copy the originals over these files and run `unpatch undo`, "
            f"or delete {left.state.folder} to keep the files as they are now."
        )
    return restored


def _put_back(left: Journal, index: int, target: Path) -> None:
    kept = left.beside(index, "old")
    if kept.is_file() and not kept.is_symlink():
        kept.replace(target)
    else:
        copy = left.beside(index, "back")
        copy.unlink(missing_ok=True)
        files.create_like(target, copy, left.original_content(index))
        copy.replace(target)
    files.sync_folder(target.parent)


def describe_interrupted(top: Path) -> str | None:
    """What a command that only reads should say about a run that was killed, or about a state it must not believe."""
    try:
        states: list[State] = interrupted(top)
        if not states:
            return None
        what = "an `unpatch undo`" if states[0].load().undoing else "a migration"
    except UsageError as error:
        return str(error)
    return f"{what} of {shown(states[0].base)} was interrupted; run `unpatch undo` to restore every file."
