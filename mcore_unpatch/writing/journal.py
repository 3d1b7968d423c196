"""Many files written one after the other, and a journal that puts them back: `migrate` writes it, `undo` reads it.

1. The originals and the plan are on disk, and `state.json` names them.
2. The new contents, beside the files they are for. A full disk or a folder that cannot be written shows here.
3. File by file: is it still what the plan was made from? Then the new content takes its place in one step.
4. `state.json` says that all of it is done.

What goes wrong before that is put back at once, or by the next `undo` or `migrate` where the run was killed: each file
that is still as it was written gets its original, and the others are named. To do so twice does no harm. The journal
lives in the git directory, else in the user's state folder, never in the work tree.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mcore_unpatch.errors import UsageError
from mcore_unpatch.repository import git, reading
from mcore_unpatch.repository.discover import project_root
from mcore_unpatch.repository.paths import from_here, shown
from mcore_unpatch.writing import files

if TYPE_CHECKING:  # a scan, which asks for a journal too, edits nothing
    from mcore_unpatch.editing.edits import NewContent

NAME = "mcore-unpatch"
_VERSION = 2
_STAGES = ("preparing", "replacing", "done")
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, RecursionError)


@dataclass(frozen=True, slots=True)
class Record:
    """The content of `state.json`: the newest journal, how far it has come, and until it is done the one before."""

    journal: str = ""
    stage: str = "done"  # or `preparing`, as long as no file is replaced, or `replacing`
    before: str = ""

    def encoded(self) -> bytes:
        """As it stands in the file."""
        return json.dumps({"version": _VERSION, "state": asdict(self)}).encode()


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a journal: digests of its content before and after."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class State:
    """The state folder of one work tree; paths in its journals are relative to `base`, the top of the work tree."""

    folder: Path
    base: Path

    @property
    def file(self) -> Path:
        """The file that names the journal."""
        return self.folder / "state.json"

    def load(self) -> Record:
        """Which journal there is; raises `UsageError` if the file cannot be believed."""
        try:
            files.check_own(self.folder)
            known = json.loads(reading.read_own(self.file))
            record = Record(**known["state"])
            tokens = filter(None, (record.journal, record.before))
            if known["version"] != _VERSION or record.stage not in _STAGES or not all(map(_is_token, tokens)):
                raise ValueError(f"it is not of version {_VERSION}")
            return record
        except FileNotFoundError:
            return Record()
        except _UNREADABLE as error:
            why = f"cannot be used ({getattr(error, 'strerror', None) or error}); nothing was changed"
            raise UsageError(f"{shown(self.file)} {why}. Delete {shown(self.folder)}, and run again.") from None

    def save(self, record: Record) -> None:
        """Replace the record in one step."""
        if record.journal:
            files.publish(self.file, record.encoded())
        else:  # takes no space on a full disk
            self.file.unlink(missing_ok=True)
        self.tidy(record)

    def tidy(self, record: Record) -> None:
        """Delete the journals that a record does not name, as far as possible now."""
        files.sync_folder(self.folder)
        with contextlib.suppress(OSError):
            for entry in self.folder.iterdir():
                if _is_token(entry.name) and entry.name not in (record.journal, record.before):
                    if not entry.is_symlink():
                        shutil.rmtree(entry, ignore_errors=True)


def _is_token(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{12}", text) is not None


def _user_state() -> Path:
    value = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (value if value.is_absolute() else Path.home() / ".local" / "state").resolve() / NAME


def may_exist(top: Path) -> bool:
    """Whether a journal can lie in the git directory of a work tree, or in the user's state folder."""
    entry = top / ".git"
    return entry.is_file() or (entry / NAME).exists() or (not entry.exists() and _user_state().exists())


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
    with files.exclusive(state.folder / "lock"):
        if state.load().stage != "done":
            _take_back(state)
        yield state


@dataclass(frozen=True, slots=True)
class Journal:
    """One migration as it is kept on disk."""

    folder: Path
    base: Path
    entries: tuple[Entry, ...]

    def target(self, index: int) -> Path:
        """The file itself; raises `UsageError` for a link, and for one on the way to it: what is behind is not ours."""
        target = self.base / self.entries[index].path
        for place in (target, *target.parents):
            if place == self.base:
                return target
            if place.is_symlink():
                break
        raise UsageError(f"{shown(target)} is a link or is reached through one; nothing is written there")

    def beside(self, index: int) -> Path:
        """The next content of the file, beside it until that takes its place."""
        return self.target(index).with_name(f".unpatch-{self.folder.name}-{index}")

    def original(self, index: int) -> bytes:
        """The original bytes; raises `OSError` if they are not what was saved."""
        file = self.folder / str(index)
        data = reading.read_own(file)
        if files.digest(data) != self.entries[index].before:
            raise OSError(errno.EIO, "it is damaged", str(file))
        return data

    def put_back(self, index: int, replaced: bool) -> str:
        """Give a file its original where it is as it was written; what is in the way, in words."""
        entry, target, place = self.entries[index], self.base / self.entries[index].path, self.folder / str(index)
        try:
            copy = self.beside(index)
            waiting = os.path.lexists(copy)  # its turn had not come, or it was on its way back
            copy.unlink(missing_ok=True)
            found = files.digest(reading.read_own(target)) if replaced and os.path.lexists(target) else ""
            if replaced and found == entry.after != entry.before:
                files.create_like(target if found else place, copy, self.original(index))
                copy.replace(target)
                files.sync_folder(target.parent)
            elif replaced and not waiting and found != entry.before:
                return f"it was {'changed' if found else 'deleted'} since; its original is {shown(place)}"
        except OSError as error:
            return f"{shown(error.filename or target)}: {error.strerror or error}; its original is {shown(place)}"
        except UsageError as error:
            return str(error)
        return ""


def _load(state: State, token: str) -> Journal:
    folder = state.folder / token
    try:
        files.check_own(folder)
        known = json.loads(reading.read_own(folder / "plan.json"))
        return Journal(folder, state.base, tuple(_checked(Entry(**entry)) for entry in known))
    except _UNREADABLE as error:
        raise UsageError(
            f"{shown(folder)} cannot be used ({error}); nothing was changed. The numbered files in it are the "
            f"originals; delete {shown(state.folder)} when you no longer need them."
        ) from None


def _checked(entry: Entry) -> Entry:
    """Raise `ValueError` for a path that leads out of the work tree, or to git's own files."""
    if not all(isinstance(text, str) for text in (entry.path, entry.before, entry.after)):
        raise ValueError("it is damaged")
    parts = entry.path.split("/")
    if not all(parts) or {"..", "."} & set(parts) or ".git" in map(str.lower, parts) or "\0" in entry.path:
        raise ValueError(f"it names {entry.path!r}, which no migration writes to")
    return entry


def write(state: State, rewrites: Sequence[NewContent]) -> None:
    """Replace the files; raises `UsageError` with every file as it was. The caller holds the lock."""
    before, token = state.load().journal, secrets.token_hex(6)
    try:
        made = _record(state, token, rewrites)
        state.save(Record(token, "preparing", before))
        for index, item in enumerate(rewrites):
            if not item.gone:
                files.create_like(made.target(index), made.beside(index), item.after)
        state.save(Record(token, "replacing", before))
        for index, item in enumerate(rewrites):
            if reading.read_own(target := made.target(index)) != item.before:
                raise UsageError(f"{shown(item.path)} changed during the migration; nothing was written. Run it again.")
            if item.gone:
                target.unlink()
            else:
                made.beside(index).replace(target)
        for folder in {made.target(index).parent for index in range(len(rewrites))}:
            files.sync_folder(folder)
        (made.folder / "done.json").replace(state.file)  # which takes no space either
        state.tidy(Record(token))
    except BaseException as error:
        said = f"{shown(error.filename or state.base)}: {error.strerror}" if isinstance(error, OSError) else str(error)
        try:
            if state.load().journal == token:
                _take_back(state)
        except (UsageError, OSError) as problem:
            raise UsageError(f"{said or 'interrupted'}\n{problem}") from error
        if isinstance(error, OSError):
            raise UsageError(f"{said}; every file is as it was") from error
        raise


def _record(state: State, token: str, rewrites: Sequence[NewContent]) -> Journal:
    """Write a journal; it counts once the record of the state names it."""
    after = ["" if item.gone else files.digest(item.after) for item in rewrites]
    entries = tuple(Entry(item.path, files.digest(item.before), new) for item, new in zip(rewrites, after, strict=True))
    journal = Journal(state.folder / token, state.base, entries)
    files.own_folder(journal.folder)
    for index, item in enumerate(rewrites):
        files.create(journal.folder / str(index), item.before)
        if item.gone:
            shutil.copymode(journal.target(index), journal.folder / str(index))
    files.create(journal.folder / "plan.json", json.dumps([asdict(entry) for entry in entries], indent=1).encode())
    files.create(journal.folder / "done.json", Record(token).encoded())
    files.sync_folder(journal.folder)
    files.sync_folder(state.folder)
    return journal


def _take_back(state: State) -> list[str]:
    """Put the newest journal back, and forget it; the paths of it. Raises `UsageError` for what is not as written."""
    record = state.load()
    made = _load(state, record.journal)
    replaced = record.stage != "preparing"
    said = {entry.path: made.put_back(index, replaced) for index, entry in enumerate(made.entries)}
    problems = {path: why for path, why in said.items() if why}
    if problems:
        listed = "".join(f"\n  {from_here(state.base / path)}: {why}" for path, why in problems.items())
        way = f"or delete {shown(state.folder)} to keep the files as they are now"
        raise UsageError(
            f"Not put back:{listed}\nAll others are as they were before the migration. Copy the originals over these "
            f"files and run `unpatch undo`, {way}."
        )
    with contextlib.suppress(OSError):  # a full disk: the next run finds the same, and nothing to put back
        state.save(Record("" if record.stage == "done" else record.before))
    return [entry.path for entry in made.entries]


def undo(folder: Path) -> list[str]:
    """Give the files of the last migration, finished or killed, their original content; the paths of them.

    Raises `UsageError` if there is none, or for files that changed since, with all others put back.
    """
    state = locate(project_root(folder.resolve()))
    with files.exclusive(state.folder / "lock"):
        if not state.load().journal:
            raise UsageError(f"Nothing to undo in {shown(state.base)}.")
        return _take_back(state)


def written_by_last(state: State) -> set[str]:
    """The files that are as the last migration left them."""
    token, known = state.load().journal, set[str]()
    for index, entry in enumerate((made := _load(state, token)).entries if token else ()):
        with contextlib.suppress(OSError, UsageError):
            gone = not entry.after and not os.path.lexists(made.target(index))
            if gone or files.digest(reading.read_own(made.target(index))) == entry.after:
                known.add(entry.path)
    return known


def describe_interrupted(top: Path) -> str | None:
    """What a command that only reads should say about a run that was killed, or about a state it must not believe."""
    try:
        state = locate(top)
        done = state.load().stage == "done"
    except UsageError as error:
        return str(error)
    return None if done else f"a migration of {shown(state.base)} was interrupted; run `unpatch undo` to restore it."
