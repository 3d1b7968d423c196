"""The journal: the original bytes of every file of a migration, on disk before the first of them is replaced.

It lives in the git directory of the repository, else in the user's state folder, never in the work tree. `state.json`
says which journal is under way and which one was finished last; it is replaced in one step.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcore_unpatch.errors import UsageError
from mcore_unpatch.repository import git, reading
from mcore_unpatch.repository.paths import shown
from mcore_unpatch.writing import files

if TYPE_CHECKING:  # a scan, which asks for a journal too, edits nothing
    from mcore_unpatch.editing.edits import NewContent

NAME = "mcore-unpatch"
_VERSION = 1


def user_state() -> Path:
    """The folder where programs keep what they must not forget."""
    value = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (value if value.is_absolute() else Path.home() / ".local" / "state").resolve()


def may_exist(top: Path) -> bool:
    """Whether a journal can lie in the git directory of a work tree, or in the user's state folder."""
    git_entry = top / ".git"
    return (
        git_entry.is_file()
        or (git_entry / NAME).exists()
        or (not git_entry.exists() and (user_state() / NAME).exists())
    )


@dataclass(frozen=True, slots=True)
class Record:
    """The content of `state.json`.

    `replacing` is set before the first file of the pending journal is replaced; `undoing` if the journal undoes `last`.
    """

    base: str
    pending: str | None = None
    replacing: bool = False
    last: str | None = None
    undoing: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` for what nobody here can have written."""
        journals = [token for token in (self.pending, self.last) if token is not None]
        flags = {type(self.replacing), type(self.undoing)}
        if not isinstance(self.base, str) or not all(map(is_token, journals)) or flags != {bool}:
            raise ValueError

    def encoded(self) -> bytes:
        """As it stands in the file."""
        return json.dumps({"version": 1, **asdict(self)}, indent=1).encode()


@dataclass(frozen=True, slots=True)
class State:
    """The state folder of one work tree; paths in its journals are relative to `base`, the top of the work tree."""

    folder: Path
    base: Path
    lock_file: Path

    @property
    def file(self) -> Path:
        """The file that says what is pending and what was last."""
        return self.folder / "state.json"

    def journal_folder(self, token: str) -> Path:
        """Where a journal keeps its files."""
        return self.folder / token

    def refuse_inside_work_tree(self) -> None:
        """Raise `UsageError` where journals would lie among the files they are about."""
        if self.lock_file.parent != self.folder and self.folder.is_relative_to(self.base):
            raise UsageError(
                f"the state folder {self.folder.parent} is inside {self.base}, which is to be migrated; "
                "set XDG_STATE_HOME to another folder"
            )

    def load(self) -> Record:
        """What is pending and what was last; raises `UsageError` if the file is damaged."""
        try:
            files.check_own(self.folder)
            data = files.content_of(self.file)
        except FileNotFoundError:
            data = None
        except OSError as error:
            raise UsageError(
                f"cannot use {shown(error.filename)}: {error.strerror}; nothing was changed. Delete it and run again."
            ) from None
        if data is None:
            return Record(str(self.base))
        try:
            known: dict[str, Any] = json.loads(data)
            if known.pop("version") != 1:
                raise ValueError
            return Record(**known)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise UsageError(
                f"{shown(self.file)} is damaged or was written by another version; "
                f"delete {self.folder} if no migration was interrupted"
            ) from None

    def save(self, record: Record) -> None:
        """Replace the record in one step."""
        files.publish(self.file, record.encoded())

    def tidy(self) -> None:
        """Delete journals that the record no longer names, as far as that is possible now."""
        with contextlib.suppress(OSError):
            record = self.load()
            for entry in self.folder.iterdir():
                if is_token(entry.name) and entry.name not in (record.pending, record.last) and not entry.is_symlink():
                    shutil.rmtree(entry, ignore_errors=True)


def is_token(text: object) -> bool:
    """Whether this can be the name of a journal."""
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{12}", text) is not None


def locate(top: Path) -> State:
    """The state of the work tree whose root is `top`."""
    top = top.resolve()
    try:
        folder = git.git_folder(git.work_tree(top)) / NAME
    except git.GitError:
        home = user_state() / NAME
        return State(home / files.digest(os.fsencode(top))[:16], top, home / "lock")
    return State(folder, top, folder / "lock")


def interrupted(top: Path) -> list[State]:
    """States with a journal under way for files at, above or below `top`: left by a run that was killed, or at work."""
    own = locate(top)
    states = [own] if own.load().pending else []
    if own.lock_file.parent != own.folder:  # outside git: every folder has a state of its own
        for file in sorted(own.lock_file.parent.glob("*/state.json")):
            state = State(file.parent, Path(), own.lock_file)
            try:
                record = state.load()
            except UsageError:
                continue  # damaged: whose it was is not to be known, and it must not stop the others
            base = Path(record.base)
            if state.folder != own.folder and record.pending and (base in own.base.parents or own.base in base.parents):
                states.append(State(state.folder, base, own.lock_file))
    return states


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A file of a journal: digests of its content before and after."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Journal:
    """One migration as it is kept on disk."""

    state: State
    token: str
    entries: tuple[JournalEntry, ...]

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return self.state.journal_folder(self.token)

    def target(self, index: int) -> Path:
        """The file itself; raises `UsageError` for a link, and for one on the way to it: what is behind is not ours."""
        target = self.state.base / self.entries[index].path
        for place in (target, *target.parents):
            if place == self.state.base:
                return target
            if place.is_symlink():
                break
        raise UsageError(f"{shown(target)} is a link or is reached through one; nothing is written there")

    def beside(self, index: int, what: str) -> Path:
        """Beside the file: its `new` content until it takes its place, the original on its way `back`.

        And the `old` file under a second name while the others are replaced: going back to it needs no disk space.
        """
        return self.target(index).with_name(f".unpatch-{self.token}-{index}.{what}")

    def original(self, index: int) -> Path:
        """Where the original bytes are kept."""
        return self.folder / str(index)

    def original_content(self, index: int) -> bytes:
        """The original bytes; raises `OSError` if they are not what was saved."""
        data = reading.read_own(self.original(index))
        if files.digest(data) != self.entries[index].before:
            raise OSError(errno.EIO, f"its saved original {shown(self.original(index))} is damaged")
        return data

    # The two ways a migration can end, written beforehand: the last step is a rename, which a full disk cannot prevent.
    @property
    def done(self) -> Path:
        """The record of the state when everything went well."""
        return self.folder / "done.json"

    @property
    def undone(self) -> Path:
        """The record of the state when everything was taken back."""
        return self.folder / "undone.json"


def record(state: State, rewrites: Sequence[NewContent], before: Record, remember: bool) -> Journal:
    """Write a journal; it counts once the record of the state names it."""
    entries = tuple(JournalEntry(item.path, files.digest(item.before), files.digest(item.after)) for item in rewrites)
    journal = Journal(state, secrets.token_hex(6), entries)
    files.own_folder(state.folder)
    files.own_folder(journal.folder)
    for index, item in enumerate(rewrites):
        files.create(journal.original(index), item.before)
    text = json.dumps({"version": _VERSION, "entries": [asdict(entry) for entry in entries]}, indent=1)
    files.create(journal.folder / "journal.json", text.encode())
    files.create(journal.done, Record(before.base, last=journal.token if remember else None).encoded())
    files.create(journal.undone, before.encoded())
    files.sync_folder(journal.folder)
    files.sync_folder(state.folder)
    return journal


def load(state: State, token: str) -> Journal:
    """Read a journal; raises `UsageError` if it is damaged."""
    folder = state.journal_folder(token)
    try:
        files.check_own(folder)
        data = json.loads(reading.read_own(folder / "journal.json"))
        if data["version"] != _VERSION:
            raise ValueError(f"it is of version {data['version']!r}, not {_VERSION}")
        return Journal(state, token, tuple(_checked(JournalEntry(**entry)) for entry in data["entries"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(
            f"{shown(folder)} cannot be used ({error}); nothing was changed. The numbered files in it are the "
            f"originals; delete {shown(state.folder)} when you no longer need them."
        ) from None


def _checked(entry: JournalEntry) -> JournalEntry:
    """Raise `ValueError` for a path that leads out of the work tree, or to git's own files."""
    if not all(isinstance(text, str) for text in (entry.path, entry.before, entry.after)):
        raise ValueError("it is damaged")
    parts = entry.path.split("/")
    if not all(parts) or {"..", "."} & set(parts) or ".git" in map(str.lower, parts) or "\0" in entry.path:
        raise ValueError(f"it names {entry.path!r}, which no migration writes to")
    return entry
