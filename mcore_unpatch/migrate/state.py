"""Where journals live: in the git directory of the repository, else in the user's state folder. Never in the work tree.

`state.json` says which journal is under way and which one was finished last; it is replaced in one step.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate import files
from mcore_unpatch.migrate.traces import NAME, user_state
from mcore_unpatch.repository import git
from mcore_unpatch.repository.paths import shown


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
        flags = (self.replacing, self.undoing)
        if (
            not isinstance(self.base, str)
            or not all(map(is_token, journals))
            or not all(type(f) is bool for f in flags)
        ):
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
