"""Many files written one after the other, and a journal that puts them back: `migrate` writes it, `undo` reads it.

The journal, with the originals, is on disk as `running.json` before anything else; then the new contents are, beside
their files, where a full disk shows. What is still as planned is replaced in one step, file by file. At the end
`running.json` becomes `undo.json`. What goes wrong is put back at once; after a kill, by the next `undo` or `migrate`.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from mcore_unpatch.editing.edits import NewContent
from mcore_unpatch.errors import UsageError
from mcore_unpatch.repository import git, reading
from mcore_unpatch.repository.discover import project_root
from mcore_unpatch.repository.paths import from_here, shown

RUNNING, DONE = "running.json", "undo.json"
_UNREADABLE = (OSError, ValueError, TypeError, AttributeError, RecursionError)


def digest(data: bytes) -> str:
    """A name for some content."""
    return hashlib.sha256(data).hexdigest()


def _create(path: Path, data: bytes, mode: int = 0o600, owner: tuple[int, int] = (-1, -1)) -> Path:
    """Write a file anew, and wait until the disk has it; the file."""
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        with suppress(PermissionError):  # only root may give files away
            os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return path


def _sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, where the system can: some refuse to open a folder, some to sync it."""
    with suppress(OSError), ExitStack() as held:
        handle = os.open(folder, os.O_RDONLY)
        held.callback(os.close, handle)
        os.fsync(handle)


def _beside(target: Path, kind: str = "new") -> Path:
    """What waits beside a file to take its place: the new content, or the old on its way back."""
    return target.with_name(f".unpatch-{kind}-{target.name}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a journal: its content before, and digests of that and of its content after."""

    path: str  # posix, relative to the top of the work tree
    original: str  # the bytes, as Latin-1
    mode: int
    owner: tuple[int, int]
    before: str
    after: str  # nothing: there is no such file afterwards

    def __post_init__(self) -> None:
        parts = self.path.split("/")
        if not all(parts) or {"..", "."} & set(parts) or ".git" in map(str.lower, parts) or "\0" in self.path:
            raise ValueError(f"it names {self.path!r}, which no migration writes to")
        if digest(self.original.encode("latin-1")) != self.before:
            raise ValueError(f"its original of {self.path!r} is damaged")


@dataclass(frozen=True, slots=True)
class State:
    """The state folder of one work tree, whose top is `base`."""

    folder: Path
    base: Path

    def load(self, name: str) -> list[Entry]:
        """The files of a journal, none if there is none; raises `UsageError` if it cannot be believed."""
        try:
            return [Entry(**entry) for entry in json.loads(reading.read_own(self.folder / name))]
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

    def write(self, rewrites: Sequence[NewContent]) -> None:
        """Replace the files; raises `UsageError` with every file as it was. The caller holds the lock."""
        try:
            entries = []
            for item in rewrites:
                facts, before = self.target(item.path).stat(), item.before.decode("latin-1")
                digests = digest(item.before), "" if item.gone else digest(item.after)
                entries.append(Entry(item.path, before, facts.st_mode & 0o777, (facts.st_uid, facts.st_gid), *digests))
            journal = json.dumps([asdict(entry) for entry in entries], indent=1).encode()
            _create(self.folder / "new.json", journal).replace(self.folder / RUNNING)
            _sync_folder(self.folder)
            for entry, item in zip(entries, rewrites, strict=True):
                if not item.gone:
                    _create(_beside(self.base / item.path), item.after, entry.mode, entry.owner)
            for item in rewrites:
                target = self.target(item.path)
                if reading.read_own(target) != item.before:
                    raise UsageError(f"{shown(item.path)} changed meanwhile; nothing was written. Run it again.")
                target.unlink() if item.gone else _beside(target).replace(target)
                _sync_folder(target.parent)
            (self.folder / RUNNING).replace(self.folder / DONE)  # which takes no space either
        except BaseException as error:
            full = isinstance(error, OSError) and f"{shown(error.filename or self.base)}: {error.strerror}"
            self.take_back(RUNNING, f"{full or error or 'interrupted'}\n")
            if full:
                raise UsageError(f"{full}; every file is as it was") from error
            raise
        _sync_folder(self.folder)

    def take_back(self, name: str, why: str = "") -> list[str]:
        """Put the files of a journal back and forget it; the paths. Raises `UsageError` for what is not as written."""
        entries, problems = self.load(name), []
        for number, entry in enumerate(entries):
            try:
                self._put_back(entry, self.folder / f"original-{number}")
            except (UsageError, *_UNREADABLE) as error:
                problems.append(f"\n  {from_here(self.base / entry.path)}: {error}")
        if problems:
            raise UsageError(
                f"{why}Not put back:{''.join(problems)}\nAll others are as they were before the migration. Copy the "
                f"originals over these files and run `unpatch undo`, or delete {shown(self.folder)} to keep them so."
            )
        (self.folder / name).unlink(missing_ok=True)
        return [entry.path for entry in entries]

    def _put_back(self, entry: Entry, kept: Path) -> None:
        """Give a file its original where it is as it was written; raises `UsageError` where a person changed it."""
        target, original = self.target(entry.path), entry.original.encode("latin-1")
        new, old = _beside(target), _beside(target, "old")
        waiting = os.path.lexists(new)  # its turn had not come
        for left in (kept, new, old):
            left.unlink(missing_ok=True)
        found = digest(reading.read_own(target)) if os.path.lexists(target) else ""
        if found == entry.after != entry.before:
            _create(old, original, entry.mode & 0o777, entry.owner).replace(target)
            _sync_folder(target.parent)
        elif not waiting and found != entry.before:
            _create(kept, original)
            raise UsageError(f"it was {'changed' if found else 'deleted'} since; its original is {shown(kept)}")


def locate(top: Path) -> State:
    """The state of a work tree: in its git directory, else in the user's state folder, never in the tree."""
    base = top.resolve()
    try:
        folder = git.git_folder(git.work_tree(base)) / "mcore-unpatch"
    except git.GitError:
        named, usual = Path(os.environ.get("XDG_STATE_HOME", "")), Path.home() / ".local" / "state"
        home = (named if named.is_absolute() else usual).resolve()
        folder = home / "mcore-unpatch" / digest(os.fsencode(base))[:16]
    return State(folder, base)


@contextmanager
def begun(top: Path) -> Iterator[tuple[State, list[str]]]:
    """Hold the lock of a work tree. What a killed run left is put back: the paths. Raises `UsageError`."""
    state = locate(top)
    folder, base, lock = state.folder, state.base, state.folder / "lock"
    if folder.is_relative_to(base) and not folder.is_relative_to(base / ".git"):
        raise UsageError(f"the state folder {folder.parent} is inside {base}; set XDG_STATE_HOME to another folder")
    with ExitStack() as held:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                raise OSError(None, "it is a link, or belongs to another user", str(folder))
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            held.callback(os.close, handle)
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock, it does not live on in a forked worker
        except OSError as error:
            why = "another unpatch is running here" if isinstance(error, BlockingIOError) else "cannot use"
            raise UsageError(f"{why}: {shown(error.filename or lock)}: {error.strerror}; nothing was changed") from None
        yield state, state.take_back(RUNNING)


def undo(folder: Path) -> list[str]:
    """Take the last migration back, finished or killed: the paths. Raises `UsageError` for files changed since."""
    with begun(project_root(folder.resolve())) as (state, restored):
        if paths := restored or state.take_back(DONE):
            return paths
        raise UsageError(f"Nothing to undo in {shown(state.base)}.")
