"""Replace many files as if they were one: all of them, or none.

1. The journal: every original, in the state folder. A crash from here on is found by the next run.
2. The new contents, beside the files they are for. A full disk or a folder that cannot be written shows here.
3. File by file: is it still what the plan was made from? Then the new content takes its place in one step.
4. The record of the state is replaced in one step; that is the moment the migration has happened.

Whatever goes wrong before, including Ctrl-C, every file gets its original back.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate import files, interrupts, journal
from mcore_unpatch.migrate.interrupts import deferred
from mcore_unpatch.migrate.journal import Journal, NewContent
from mcore_unpatch.migrate.recovery import take_back
from mcore_unpatch.migrate.state import State
from mcore_unpatch.repository.paths import from_here, shown

_NO_SECOND_NAMES = {errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


def write(state: State, rewrites: Sequence[NewContent], remember: bool = True) -> None:
    """Replace the files; raises `UsageError` with every file as it was. The caller holds the lock.

    With `remember` the journal is kept, so that the migration can be taken back.
    """
    _refuse_unwritable(state, rewrites)
    with deferred() as check:
        try:
            before = state.load()
            made = journal.record(state, rewrites, before, remember)
            check()
            pending = replace(before, pending=made.token, undoing=not remember)
            state.save(pending)
            for index, item in enumerate(rewrites):
                check()
                files.create_like(made.target(index), made.staged(index), item.after)
            state.save(replace(pending, replacing=True))
            _replace_all(made, rewrites, check)
            made.done.replace(state.file)
            interrupts.commit()
        except BaseException as error:
            _take_back(state, error)
            raise
        files.sync_folder(state.folder)
        state.tidy()


def _take_back(state: State, error: BaseException) -> None:
    """Undo what was done; raises in words what the user should know."""
    cause = f"{shown(error.filename or state.base)}: {error.strerror}" if isinstance(error, OSError) else str(error)
    try:
        take_back(state)
    except UsageError as problem:
        raise UsageError(f"{cause or 'interrupted'}\n{problem}") from error
    if isinstance(error, OSError):
        raise UsageError(f"{cause}; every file is as it was") from error


def _replace_all(made: Journal, rewrites: Sequence[NewContent], check: Callable[[], None]) -> None:
    for index, item in enumerate(rewrites):
        check()
        _replace(made, index, item)
    for index in range(len(rewrites)):
        made.kept(index).unlink(missing_ok=True)
    for folder in {made.target(index).parent for index in range(len(rewrites))}:
        files.sync_folder(folder)
    check()


def _replace(made: Journal, index: int, item: NewContent) -> None:
    target, kept = made.target(index), made.kept(index)
    has_second_name = _keep(target, kept)
    if files.content_of(target) != item.before:
        raise _changed(item.path)
    made.staged(index).replace(target)
    # Somebody with the old file still open may have written to it just now: then that is what comes back.
    if has_second_name and files.content_of(kept) != item.before:
        raise _changed(item.path)


def _keep(target: Path, kept: Path) -> bool:
    try:
        os.link(target, kept)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in _NO_SECOND_NAMES:
            return False
        raise
    return True


def _changed(path: str) -> UsageError:
    return UsageError(f"{shown(path)} changed during the migration; nothing was written. Run it again.")


def _refuse_unwritable(state: State, rewrites: Sequence[NewContent]) -> None:
    locked = []
    for item in rewrites:
        target = state.base / item.path
        with contextlib.suppress(FileNotFoundError):  # found out again, and told, when its turn comes
            if not target.stat().st_mode & 0o222 or not os.access(target, os.W_OK):
                locked.append(from_here(target))
    if locked:
        listed = "".join(f"\n  {path}" for path in locked)
        raise UsageError(f"These files are read-only; nothing was written. Make them writable or exclude them:{listed}")
