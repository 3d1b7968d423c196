"""Hit a migration at every system call it makes, one child process per call, and look at what is left.

    python fault_driver.py kill|kill-undo|full|interrupt FOLDER

Python announces file operations (open, rename, unlink, mkdir) to audit hooks before it makes them, and every sync is
one of ours. The child counts them while it writes, and at the n-th is killed with SIGKILL, gets Ctrl-C, or finds the
disk full from then on. Whatever is left, `undo` has to bring every file back; an `undo` that is killed as well, at each
of its own operations, is finished by the next one.

A run that nothing strikes any more tells which operations it made: every one of them was struck.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from sample_repository import CHANGED, FILES, MIGRATED, Sample

from mcore_unpatch.editing.edits import NewContent
from mcore_unpatch.errors import UsageError
from mcore_unpatch.writing.journal import DONE as LAST, RUNNING, begun, locate, undo

OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir", "os.chmod", "os.chown", "sync"}
DONE, REFUSED, INTERRUPTED, FAILED = 0, 3, 4, 9


class Strike:
    """An audit hook that lets n - 1 operations pass."""

    def __init__(self, how: str, number: int) -> None:
        self.how, self.number, self.seen = how, number, 0

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in OPERATIONS or (self.how == "full" and not needs_space(event, arguments)):
            return
        self.seen += 1
        if self.how == "full" and self.seen >= self.number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.seen == self.number:
            os.kill(os.getpid(), signal.SIGINT if self.how == "interrupt" else signal.SIGKILL)


def needs_space(event: str, arguments: tuple[object, ...]) -> bool:
    if event == "open":
        flags = arguments[2]
        return isinstance(flags, int) and bool(flags & os.O_CREAT)
    return event in ("os.mkdir", "sync")


def announce_syncs() -> None:
    """The one stand-in: `os.fsync` tells nobody of itself."""
    sync = os.fsync

    def announced(handle: int) -> None:
        sys.audit("sync", handle)
        sync(handle)

    os.fsync = announced


def migrate(sample: Sample, strike: Strike) -> int:
    """In the child: migrate."""
    rewrites = [NewContent(name, FILES[name], MIGRATED[name]) for name in CHANGED]
    with begun(sample.root) as (state, _):
        sys.addaudithook(strike)
        try:
            state.write(rewrites)
        except UsageError as error:
            assert "every file is as it was" in str(error), error
            return REFUSED
        except KeyboardInterrupt:
            return INTERRUPTED
    return DONE


def take_back(sample: Sample, strike: Strike) -> int:
    """In the child: undo."""
    sys.addaudithook(strike)
    undo(sample.root)
    return DONE


def child(work: Callable[[Sample, Strike], int], sample: Sample, how: str, number: int) -> int:
    """The wait status of a process that does some work and is struck."""
    if pid := os.fork():
        return os.waitpid(pid, 0)[1]
    try:
        announce_syncs()
        code = work(sample, Strike(how, number))
    except BaseException:
        traceback.print_exc()
        code = FAILED
    os._exit(code)


def is_half_done(sample: Sample) -> bool:
    left, told = sample.contents(), bool(locate(sample.root).load(RUNNING))
    for name in FILES:
        assert left[name] in (FILES[name], MIGRATED[name]), f"{name} is neither old nor new"
    assert told or left in (FILES, MIGRATED), "half done, and the next run would not know"
    return told


def struck(sample: Sample, how: str, number: int) -> bool:
    """Whether a run was struck; what it left is put right, and checked."""
    if how == "kill-undo":
        assert child(migrate, sample, "", 0) == DONE
        status = child(take_back, sample, "kill", number)
        for name, data in sample.contents().items():
            assert data in (FILES[name], MIGRATED[name]), f"{name} is neither old nor new"
    else:
        status = child(migrate, sample, how, number)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    assert code != FAILED
    if how != "kill-undo":
        half_done = is_half_done(sample)
        assert code is None or not half_done, "a run that came to an end left something half done"
    if code == REFUSED:
        assert sample.contents() == FILES
    if any(map(locate(sample.root).load, (RUNNING, LAST))):
        assert sorted(undo(sample.root)) == sorted(CHANGED)
    assert sample.contents() == FILES
    assert sample.status() == [], sample.status()
    return code != DONE


def main() -> None:
    how, sample = sys.argv[1], Sample(Path(sys.argv[2])).commit()
    for number in range(1, 500):
        if not struck(sample, how, number):
            print(number - 1)
            return
    raise AssertionError("never came to an end")


if __name__ == "__main__":
    main()
