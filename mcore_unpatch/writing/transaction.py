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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mcore_unpatch.editing.edits import NewContent
from mcore_unpatch.errors import UsageError
from mcore_unpatch.repository import git
from mcore_unpatch.repository.discover import project_root
from mcore_unpatch.repository.paths import from_here, shown
from mcore_unpatch.writing import files, interrupts, journal
from mcore_unpatch.writing.journal import Journal, State, interrupted, locate
from mcore_unpatch.writing.recovery import recover, take_back

_NO_SECOND_NAMES = {errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
_LISTED = 20  # files with uncommitted changes


@contextmanager
def begun(top: Path) -> Iterator[State]:
    """Hold the lock of a work tree, with what a killed run left half done taken back; raises `UsageError`."""
    state = locate(top)
    state.refuse_inside_work_tree()
    with files.exclusive(state.lock_file):
        recover(top)
        yield state


def write(state: State, rewrites: Sequence[NewContent], remember: bool = True) -> None:
    """Replace the files; raises `UsageError` with every file as it was. The caller holds the lock.

    With `remember` the journal is kept, so that the migration can be taken back.
    """
    _refuse_unwritable(state, rewrites)
    with interrupts.deferred() as check:
        try:
            before = state.load()
            made = journal.record(state, rewrites, before, remember)
            check()
            pending = replace(before, pending=made.token, undoing=not remember)
            state.save(pending)
            for index, item in enumerate(rewrites):
                check()
                files.create_like(made.target(index), made.beside(index, "new"), item.after)
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
        made.beside(index, "old").unlink(missing_ok=True)
    for folder in {made.target(index).parent for index in range(len(rewrites))}:
        files.sync_folder(folder)
    check()


def _replace(made: Journal, index: int, item: NewContent) -> None:
    target, kept = made.target(index), made.beside(index, "old")
    has_second_name = _keep(target, kept)
    if files.content_of(target) != item.before:
        raise _changed(item.path)
    made.beside(index, "new").replace(target)
    # Somebody with the old file still open may have written to it just now: then that is what comes back.
    if has_second_name and files.content_of(kept) != item.before:
        raise _changed(item.path)


def _keep(target: Path, kept: Path) -> bool:
    try:
        os.link(target, kept)
    except OSError as error:
        if error.errno not in {errno.ENOENT, *_NO_SECOND_NAMES}:
            raise
        return False
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


def refuse_unsafe(
    root: Path, top: Path, paths: Iterable[str], allow_dirty: bool, allow_no_vcs: bool, ours: Collection[str] = ()
) -> None:
    """Raise `UsageError` for uncommitted work below `root`, or outside of git.

    `paths` are the files to be written, relative to `top`; one that git does not track counts as uncommitted. `ours`
    do not.
    """
    try:
        git.work_tree(top)
    except git.GitError as error:
        if not allow_no_vcs:
            raise UsageError(_no_vcs(top, str(error))) from None
        return
    if allow_dirty:
        return
    tracked = set(git.names(git.run(top, "ls-files", "-z")))
    dirty = dict.fromkeys((path for path in git.changed_files(root, top) if path not in ours), "changed")
    dirty |= {path: "not tracked" for path in paths if path not in tracked}
    if dirty:
        lines = [f"  {from_here(top / path)} ({why})" for path, why in sorted(dirty.items())]
        if len(lines) > _LISTED:
            lines[_LISTED:] = [f"  ... and {len(lines) - _LISTED} more"]
        raise UsageError(
            "The work tree has uncommitted changes; nothing was written:\n"
            + "\n".join(lines)
            + "\nCommit or stash them, or use --allow-dirty to migrate on top of them."
        )


def _no_vcs(top: Path, reason: str) -> str:
    if any((folder / ".git").exists() for folder in (top, *top.parents)):
        return f"git cannot read this repository: {reason}\nFix that, or use --allow-no-vcs to write without git."
    return (
        f"{top} is not a git repository, so the changes could not be reviewed or reverted. Nothing was written. "
        "Use --allow-no-vcs to write anyway; `unpatch undo` reverts it."
    )


def undo(folder: Path) -> list[str]:
    """Give the files of the last migration, finished or killed, their original content; the paths of them.

    Raises `UsageError`, with nothing written, if there is none or if one of its files has changed since.
    """
    top = project_root(folder.resolve())
    state = locate(top)
    state.refuse_inside_work_tree()
    with files.exclusive(state.lock_file):
        half_done = interrupted(top)
        half_undone = [state for state in half_done if state.load().undoing]
        restored = recover(top)
        if half_done and not half_undone:
            return restored
        # An undo that was killed began by what it left: all of its files migrated again.
        return [path for half in half_undone or [state] for path in _undo(half)]


def _undo(state: State) -> list[str]:
    token = state.load().last
    if token is None:
        raise UsageError(f"Nothing to undo in {shown(state.base)}.")
    rewrites = _reversed(journal.load(state, token))
    write(state, rewrites, remember=False)
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
