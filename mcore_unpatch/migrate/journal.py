"""The journal: the original bytes of every file of a migration, on disk before the first of them is replaced."""

from __future__ import annotations

import errno
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate import files
from mcore_unpatch.migrate.state import Record, State
from mcore_unpatch.repository import reading
from mcore_unpatch.repository.paths import shown

_VERSION = 1


@dataclass(frozen=True, slots=True)
class NewContent:
    """A file with its content before and after; the path is posix and relative to the top of the work tree."""

    path: str
    before: bytes
    after: bytes


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

    def staged(self, index: int) -> Path:
        """The new content, beside the file, until it takes its place."""
        return self.target(index).with_name(f".unpatch-{self.token}-{index}.new")

    def kept(self, index: int) -> Path:
        """A second name of the original file while the others are replaced: going back to it needs no disk space."""
        return self.target(index).with_name(f".unpatch-{self.token}-{index}.old")

    def copy(self, index: int) -> Path:
        """The original content on its way back, where there is no second name."""
        return self.target(index).with_name(f".unpatch-{self.token}-{index}.back")

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
