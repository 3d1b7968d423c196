"""Many files written one after the other, and a journal that puts them back: `migrate` writes it, `undo` reads it.

1. The journal, with the originals and the plan, is on disk as `running.json`.
2. The new contents, beside the files they are for. A full disk or a folder that cannot be written shows here.
3. File by file: is it still what the plan was made from? Then the new content takes its place in one step.
4. `running.json` becomes `undo.json`, in place of that of the migration before.

What goes wrong before that is put back at once, or by the next `undo` or `migrate` where the run was killed. The
journal lives in the git directory, else in the user's state folder, never in the work tree.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from mcore_unpatch.editing.edits import NewContent
from mcore_unpatch.errors import UsageError
from mcore_unpatch.repository import git, reading
from mcore_unpatch.repository.discover import project_root
from mcore_unpatch.repository.paths import from_here, shown
from mcore_unpatch.writing import files

NAME = "mcore-unpatch"
RUNNING, DONE = "running.json", "undo.json"
_UNREADABLE = (OSError, ValueError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a journal: its content before, and digests of that and of its content after."""

    path: str  # posix, relative to the top of the work tree
    original: str  # the bytes, as Latin-1
    mode: int
    owner: tuple[int, int]
    before: str
    after: str  # nothing: there is no such file afterwards

    def check(self) -> None:
        """Raise `ValueError` for a path that leads out of the work tree or to git's own files, and for damage."""
        parts = self.path.split("/")
        if not all(parts) or {"..", "."} & set(parts) or ".git" in map(str.lower, parts) or "\0" in self.path:
            raise ValueError(f"it names {self.path!r}, which no migration writes to")
        if files.digest(self.original.encode("latin-1")) != self.before:
            raise ValueError(f"its original of {self.path!r} is damaged")


@dataclass(frozen=True, slots=True)
class State:
    """The state folder of one work tree, whose top is `base`."""

    folder: Path
    base: Path

    def load(self, name: str) -> list[Entry]:
        """The files of a journal, none if there is none; raises `UsageError` if it cannot be believed."""
        try:
            files.check_own(self.folder)
            entries = [Entry(**entry) for entry in json.loads(reading.read_own(self.folder / name))]
            for entry in entries:
                entry.check()
            return entries
        except FileNotFoundError:
            return []
        except _UNREADABLE as error:
            why = f"{shown(self.folder / name)} cannot be used ({error}); nothing was changed"
            raise UsageError(f"{why}. It has the originals; delete {shown(self.folder)} to do without them.") from None

    def target(self, path: str) -> Path:
        """The file itself; raises `UsageError` for a link, and for one on the way to it: what is behind is not ours."""
        target = self.base / path
        if any(place.is_symlink() for place in (target, *target.parents) if place.is_relative_to(self.base)):
            raise UsageError(f"{shown(target)} is a link or is reached through one; nothing is written there")
        return target


def _user_state() -> Path:
    value = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (value if value.is_absolute() else Path.home() / ".local" / "state").resolve() / NAME


def locate(top: Path) -> State:
    """The state of the work tree whose root is `top`."""
    top = top.resolve()
    try:
        return State(git.git_folder(git.work_tree(top)) / NAME, top)
    except git.GitError:
        return State(_user_state() / files.digest(os.fsencode(top))[:16], top)


@contextmanager
def begun(top: Path) -> Iterator[State]:
    """Hold the lock of a work tree, with what a killed run left half done put back; raises `UsageError`."""
    state = locate(top)
    if state.folder.is_relative_to(state.base) and not state.folder.is_relative_to(state.base / ".git"):
        inside = f"the state folder {state.folder.parent} is inside {state.base}, which is to be migrated"
        raise UsageError(f"{inside}; set XDG_STATE_HOME to another folder")
    with files.exclusive(state.folder):
        _take_back(state, RUNNING)
        yield state


def write(state: State, rewrites: Sequence[NewContent]) -> None:
    """Replace the files; raises `UsageError` with every file as it was. The caller holds the lock."""
    try:
        entries, new = [_entry(item, state.target(item.path)) for item in rewrites], state.folder / "new.json"
        files.create(new, json.dumps([asdict(entry) for entry in entries], indent=1).encode())
        new.replace(state.folder / RUNNING)
        files.sync_folder(state.folder)
        for entry, item in zip(entries, rewrites, strict=True):
            if not item.gone:
                files.create(_beside(state.base / item.path), item.after, entry.mode, entry.owner)
        for item in rewrites:
            target = state.target(item.path)
            if reading.read_own(target) != item.before:
                raise UsageError(f"{shown(item.path)} changed during the migration; nothing was written. Run it again.")
            target.unlink() if item.gone else _beside(target).replace(target)
        for folder in {(state.base / item.path).parent for item in rewrites}:
            files.sync_folder(folder)
        (state.folder / RUNNING).replace(state.folder / DONE)  # which takes no space either
    except BaseException as error:
        said = f"{shown(error.filename or state.base)}: {error.strerror}" if isinstance(error, OSError) else str(error)
        try:
            _take_back(state, RUNNING)
        except UsageError as problem:
            raise UsageError(f"{said or 'interrupted'}\n{problem}") from error
        if isinstance(error, OSError):
            raise UsageError(f"{said}; every file is as it was") from error
        raise
    files.sync_folder(state.folder)


def _entry(item: NewContent, target: Path) -> Entry:
    facts, after = target.stat(), "" if item.gone else files.digest(item.after)
    kept = item.before.decode("latin-1"), facts.st_mode & 0o777, (facts.st_uid, facts.st_gid)
    return Entry(item.path, *kept, files.digest(item.before), after)


def _beside(target: Path, kind: str = "new") -> Path:
    """What waits beside a file to take its place: the new content, or the old on its way back."""
    return target.with_name(f".unpatch-{kind}-{target.name}")


def _found(target: Path) -> str:
    return files.digest(reading.read_own(target)) if os.path.lexists(target) else ""


def _take_back(state: State, name: str) -> list[str]:
    """Put the files of a journal back, and forget it; their paths. Raises `UsageError` for what is not as written."""
    entries, problems = state.load(name), []
    for number, entry in enumerate(entries):
        try:
            _put_back(state, entry, state.folder / f"original-{number}")
        except (UsageError, *_UNREADABLE) as error:
            problems.append(f"\n  {from_here(state.base / entry.path)}: {error}")
    if problems:
        raise UsageError(
            f"Not put back:{''.join(problems)}\nAll others are as they were before the migration. Copy the originals "
            f"over these files and run `unpatch undo`, or delete {shown(state.folder)} to keep them as they are now."
        )
    (state.folder / name).unlink(missing_ok=True)
    return [entry.path for entry in entries]


def _put_back(state: State, entry: Entry, kept: Path) -> None:
    """Give a file its original where it is as it was written; raises `UsageError` where a person changed it."""
    target, original = state.target(entry.path), entry.original.encode("latin-1")
    waiting = os.path.lexists(_beside(target))  # its turn had not come
    for left in (kept, _beside(target), _beside(target, "old")):
        left.unlink(missing_ok=True)
    found = _found(target)
    if found == entry.after != entry.before:
        files.create(_beside(target, "old"), original, entry.mode & 0o777, entry.owner)
        _beside(target, "old").replace(target)
        files.sync_folder(target.parent)
    elif not waiting and found != entry.before:
        files.create(kept, original)
        raise UsageError(f"it was {'changed' if found else 'deleted'} since; its original is {shown(kept)}")


def undo(folder: Path) -> list[str]:
    """Give the files of the last migration, finished or killed, their original content; the paths of them.

    Raises `UsageError` if there is none, or for files that changed since, with all others put back.
    """
    state = locate(project_root(folder.resolve()))
    with files.exclusive(state.folder):
        if paths := _take_back(state, RUNNING) or _take_back(state, DONE):
            return paths
        raise UsageError(f"Nothing to undo in {shown(state.base)}.")


def interrupted(top: Path) -> bool:
    """Whether a run was killed, and is still to be put back; raises `UsageError` for what cannot be believed."""
    return bool(locate(top).load(RUNNING))
