"""The journal: the original bytes of every file of a migration, on disk before the first of them is replaced."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate import files
from mcore_unpatch.migrate.state import Record, State


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A file with its content before and after; the path is posix and relative to the top of the work tree."""

    path: str
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a journal: digests of its content before and after."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Journal:
    """One migration as it is kept on disk."""

    state: State
    token: str
    entries: tuple[Entry, ...]

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return self.state.journal_folder(self.token)

    def target(self, index: int) -> Path:
        """The file itself; a symbolic link stays one, and what it points to is rewritten."""
        return Path(os.path.realpath(self.state.base / self.entries[index].path))

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
        """The original bytes."""
        return self.folder / str(index)

    # The two ways a migration can end, written beforehand: the last step is a rename, which a full disk cannot prevent.
    @property
    def done(self) -> Path:
        """The record of the state when everything went well."""
        return self.folder / "done.json"

    @property
    def undone(self) -> Path:
        """The record of the state when everything was taken back."""
        return self.folder / "undone.json"


def record(state: State, rewrites: Sequence[Rewrite], before: Record, remember: bool) -> Journal:
    """Write a journal; it counts once the record of the state names it."""
    entries = tuple(Entry(item.path, files.digest(item.before), files.digest(item.after)) for item in rewrites)
    journal = Journal(state, secrets.token_hex(6), entries)
    journal.folder.mkdir(parents=True)
    for index, item in enumerate(rewrites):
        files.create(journal.original(index), item.before)
    text = json.dumps({"version": 1, "entries": [asdict(entry) for entry in entries]}, indent=1)
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
        data = json.loads((folder / "journal.json").read_bytes())
        return Journal(state, token, tuple(Entry(**entry) for entry in data["entries"]))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{folder} cannot be read ({error}); the numbered files in it are the originals") from None
