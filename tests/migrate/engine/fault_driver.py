"""Hit a migration at every system call it makes, one child process per call, and look at what is left.

    python fault_driver.py kill|kill-twice|kill-without-links|kill-undo|full|full-and-changed|interrupt FOLDER

Python announces file operations (open, rename, link, unlink, mkdir) to audit hooks before it makes them. The child
counts them while it writes, and at the n-th is killed with SIGKILL, gets Ctrl-C, or finds the disk full from then on.
With `kill-twice` the run that puts things right is killed as well, again and again, one operation later each time.
`kill-without-links` is a file system that has no hard links; in `full-and-changed` somebody changed the second file;
`kill-undo` kills an undo, which the next one has to finish.

A run that nothing strikes any more tells which operations it made: every one of them was struck, of every kind that a
migration is made of, else nothing was tried here.
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
from mcore_unpatch.writing import transaction
from mcore_unpatch.writing.files import exclusive
from mcore_unpatch.writing.journal import interrupted, locate
from mcore_unpatch.writing.recovery import describe_interrupted, recover
from mcore_unpatch.writing.transaction import undo

OPERATIONS = {
    "open",
    "os.rename",
    "os.link",
    "os.remove",
    "os.mkdir",
    "os.chmod",
    "os.utime",
    "os.rmdir",
    "shutil.rmtree",
}
DONE, REFUSED, INTERRUPTED, STRUCK, CHANGED_MEANWHILE, FAILED = 0, 3, 4, 5, 6, 9


class Strike:
    """An audit hook that lets n - 1 operations pass."""

    def __init__(self, how: str, number: int) -> None:
        self.how, self.number, self.seen = how, number, 0
        self.operations: list[str] = []

    @property
    def happened(self) -> bool:
        return self.seen >= self.number

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        full = self.how.startswith("full")
        if event not in OPERATIONS or (full and not needs_space(event, arguments)):
            return
        if event == "os.link" and self.how == "kill-without-links":
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        self.seen += 1
        self.operations.append(event)
        if full and self.happened:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.seen == self.number:
            os.kill(os.getpid(), signal.SIGINT if self.how == "interrupt" else signal.SIGKILL)


def needs_space(event: str, arguments: tuple[object, ...]) -> bool:
    if event == "open":
        flags = arguments[2]
        return isinstance(flags, int) and bool(flags & os.O_CREAT)
    return event in ("os.mkdir", "os.link")


def write(sample: Sample, strike: Strike) -> int:
    """In the child: migrate."""
    state = locate(sample.root)
    rewrites = [NewContent(name, FILES[name], MIGRATED[name]) for name in CHANGED]
    if strike.how == "full-and-changed":
        rewrites[1] = NewContent(CHANGED[1], b"what the plan was made from", MIGRATED[CHANGED[1]])
    with exclusive(state.lock_file):
        sys.addaudithook(strike)
        try:
            transaction.write(state, rewrites)
        except UsageError as error:
            assert "every file is as it was" in str(error) or "nothing was written" in str(error), error
            return REFUSED if strike.happened else CHANGED_MEANWHILE
        except KeyboardInterrupt:
            return INTERRUPTED
    return STRUCK if strike.happened else DONE


def take_back(sample: Sample, strike: Strike) -> int:
    """In the child: undo."""
    sys.addaudithook(strike)
    undo(sample.root)
    return DONE


def examine_undo(sample: Sample, status: int) -> str:
    """Whatever a killed undo left, the next one has every file as it was before the migration."""
    left = sample.contents()
    pending = bool(interrupted(sample.root))
    assert pending or left in (FILES, MIGRATED), "half done, and the next run would not know"
    if pending:
        assert "`unpatch undo`" in str(describe_interrupted(sample.root))
    if pending or left == MIGRATED:
        assert sorted(undo(sample.root)) == sorted(CHANGED)
    assert sample.contents() == FILES
    assert sample.status() == []
    try:
        undo(sample.root)
    except UsageError:
        return "old"
    raise AssertionError("undone twice")


def put_right(sample: Sample, strike: Strike) -> int:
    """In the child: what the next run does first."""
    with exclusive(locate(sample.root).lock_file):
        sys.addaudithook(strike)
        recover(sample.root)
    return DONE


def child(work: Callable[[Sample, Strike], int], sample: Sample, how: str, number: int) -> int:
    """The wait status of a process that does some work and is struck."""
    if pid := os.fork():
        return os.waitpid(pid, 0)[1]
    strike = Strike(how, number)
    handle = os.open(told(sample), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)  # before anything strikes
    try:
        code = work(sample, strike)
        os.write(handle, " ".join(strike.operations).encode())
    except BaseException:
        traceback.print_exc()
        code = FAILED
    os._exit(code)


def told(sample: Sample) -> Path:
    """Where a run that comes to an end says which operations it has made."""
    return sample.root.parent / "operations"


def check_fired(how: str, sample: Sample, struck: int) -> None:
    """Every operation of a whole run was struck, and all kinds of them."""
    made = told(sample).read_text().split()
    wanted = {"open", "os.mkdir"} if how.startswith("full") else {"open", "os.rename", "os.remove"}
    if how in ("kill", "kill-twice", "full", "interrupt"):
        wanted |= {"os.link"}
    assert wanted <= set(made), f"never tried: {wanted - set(made)}"
    step = 3 if how == "kill-twice" else 1
    assert struck == len(range(1, len(made) + 1, step)), f"{len(made)} operations, and {struck} strikes"


def examine(sample: Sample, how: str, status: int) -> str:
    """Check what a strike left, put it right as the next run would, and check again."""
    left = sample.contents()
    for name in FILES:
        assert left[name] in (FILES[name], MIGRATED[name]), f"{name} is neither old nor new"
    if os.WIFSIGNALED(status):
        pending = bool(interrupted(sample.root))
        assert pending or left in (FILES, MIGRATED), "half done, and the next run would not know"
        if how == "kill-twice":
            number = 1
            while os.WIFSIGNALED(status):
                status = child(put_right, sample, "kill", number)
                number += 1
            assert os.WEXITSTATUS(status) == DONE
        with exclusive(locate(sample.root).lock_file):
            recover(sample.root)
        assert sample.contents() == (FILES if pending else left)
    else:
        code = os.WEXITSTATUS(status)
        assert code != FAILED
        assert not interrupted(sample.root)
        assert left == (FILES if code in (REFUSED, INTERRUPTED, CHANGED_MEANWHILE) else MIGRATED), "half done"
    after = sample.contents()
    assert sample.status() == ([] if after == FILES else [f" M {name}" for name in sorted(CHANGED)]), sample.status()
    if after == MIGRATED:
        undo(sample.root)
        assert sample.contents() == FILES
    return "old" if after == FILES else "new"


def main() -> None:
    how, folder = sys.argv[1], Path(sys.argv[2])
    sample = Sample(folder).commit()
    results: list[str] = []
    struck = 0
    for number in range(1, 500, 3 if how == "kill-twice" else 1):
        if how == "kill-undo":
            child(write, sample, "", 0)
            status = child(take_back, sample, "kill", number)
            results.append(examine_undo(sample, status))
        else:
            status = child(write, sample, how, number)
            results.append(examine(sample, how, status))
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) in (DONE, CHANGED_MEANWHILE):
            break
        struck += 1
    else:
        raise AssertionError("never came to an end")
    assert "old" in results
    check_fired(how, sample, struck)
    print(f"{len(results)} strikes, {results.count('old')} taken back")


if __name__ == "__main__":
    main()
