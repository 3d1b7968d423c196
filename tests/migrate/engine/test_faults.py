"""What can go wrong while files are written goes wrong here: nothing is lost, and the message says what happened."""

import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from limits import patience
from sample_repository import ACTOR, CHANGED, FILES, MIGRATED, Sample, planner

from mcore_unpatch.editing.edits import NewContent, Options, Plan, Repository
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.migrate.run import migrate, preview
from mcore_unpatch.writing import files, journal, transaction
from mcore_unpatch.writing.files import exclusive
from mcore_unpatch.writing.journal import Record, State, locate
from mcore_unpatch.writing.recovery import describe_interrupted, recover
from mcore_unpatch.writing.transaction import undo

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["kill", "kill-twice", "kill-without-links", "kill-undo", "full", "full-and-changed", "interrupt"]
)
def test_struck_at_every_operation(how: str, tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "fault_driver.py"), how, str(tmp_path / "repo")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(120))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 9


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mount.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def big_rewrites(root: Path, count: int) -> list[NewContent]:
    rewrites = []
    for number in range(count):
        before = b"# %d\n" % number + b"x = 1\n" * 5000
        (root / f"{number}.py").write_bytes(before)
        rewrites.append(NewContent(f"{number}.py", before, before.replace(b"1", b"2")))
    return rewrites


def leftovers(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name.startswith(".unpatch"))


def test_a_full_disk(small_disk: Path) -> None:
    rewrites = big_rewrites(small_disk, 5)  # 150 KB, and as much again does not fit
    with pytest.raises(UsageError, match="No space left on device; every file is as it was"):
        transaction.write(locate(small_disk), rewrites)
    assert all((small_disk / item.path).read_bytes() == item.before for item in rewrites)
    assert leftovers(small_disk) == []
    assert describe_interrupted(small_disk) is None


def test_a_full_disk_for_the_journal(small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(small_disk))
    work = tmp_path / "work"
    work.mkdir()
    rewrites = big_rewrites(work, 12)
    with pytest.raises(UsageError, match="No space left on device; every file is as it was"):
        transaction.write(locate(work), rewrites)
    assert all((work / item.path).read_bytes() == item.before for item in rewrites)
    assert leftovers(work) == []
    assert list(small_disk.glob("mcore-unpatch/*/*")) == []


def test_a_write_that_fails_half_way(tmp_path: Path) -> None:
    """The system's own limit on the size of files, in a process of its own: the fourth file cannot be written whole."""
    work = tmp_path / "work"
    work.mkdir()
    rewrites = big_rewrites(work, 4)
    large = replace(rewrites[3], after=rewrites[3].after * 3)
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        try:
            transaction.write(locate(work), [*rewrites[:3], large])
        except UsageError as error:
            os._exit(3 if "File too large; every file is as it was" in str(error) else 4)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert all((work / item.path).read_bytes() == item.before for item in rewrites)
    assert leftovers(work) == []


def test_read_only_files_are_listed_and_nothing_is_written(sample: Sample) -> None:
    for name in CHANGED:
        (sample.root / name).chmod(0o444)
    with pytest.raises(UsageError, match=r"read-only.*\n .*/rl/actor.py\n .*/rl/deep/trainer.py"):
        migrate(sample.request(), planner)
    assert sample.contents() == FILES
    assert stat.S_IMODE((sample.root / CHANGED[0]).stat().st_mode) == 0o444


def test_a_file_changed_after_planning_keeps_the_change(sample: Sample) -> None:
    trainer = sample.root / CHANGED[1]

    def slow(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
        plan = planner(project, findings, options)
        if not plan.edits:  # the second look, just before writing
            trainer.write_bytes(b"mine = 1\n")
        return plan

    with pytest.raises(UsageError, match=r"rl/deep/trainer.py changed during the migration"):
        migrate(sample.request(allow_dirty=True), slow)
    assert trainer.read_bytes() == b"mine = 1\n"
    assert (sample.root / CHANGED[0]).read_bytes() == ACTOR
    assert sample.status() == [" M rl/deep/trainer.py"]


def test_a_file_deleted_after_planning(sample: Sample) -> None:
    state = locate(sample.root)
    rewrites = [NewContent(name, FILES[name], MIGRATED[name]) for name in CHANGED]
    (sample.root / CHANGED[1]).unlink()
    with pytest.raises(UsageError, match="No such file or directory; every file is as it was"):
        transaction.write(state, rewrites)
    assert (sample.root / CHANGED[0]).read_bytes() == ACTOR
    assert sample.status() == [" D rl/deep/trainer.py"]


def killed_half_way(sample: Sample) -> State:
    """As after a SIGKILL between the first file and the second."""
    state = locate(sample.root)
    rewrites = [NewContent(name, FILES[name], MIGRATED[name]) for name in CHANGED]
    made = journal.record(state, rewrites, state.load(), remember=True)
    state.save(Record(str(state.base), pending=made.token, replacing=True))
    for index, item in enumerate(rewrites):
        files.create_like(made.target(index), made.beside(index, "new"), item.after)
    made.beside(0, "new").replace(made.target(0))
    return state


def test_the_next_run_takes_back_a_killed_one(sample: Sample) -> None:
    killed_half_way(sample)
    assert sample.contents() != FILES
    with pytest.raises(UsageError, match=r"was interrupted; run `unpatch undo`"):
        preview(sample.request(), planner)
    assert migrate(sample.request(), planner).written
    assert sample.contents() == MIGRATED
    assert undo(sample.root) == list(CHANGED)
    assert sample.contents() == FILES


def test_undo_takes_back_a_killed_one(sample: Sample) -> None:
    killed_half_way(sample)
    assert undo(sample.root) == [CHANGED[0]]
    assert sample.contents() == FILES
    assert sample.status() == []


def test_a_person_decides_when_a_file_changed_after_the_kill(sample: Sample) -> None:
    state = killed_half_way(sample)
    actor = sample.root / CHANGED[0]
    actor.write_bytes(b"mine = 1\n")
    with pytest.raises(UsageError, match=r"rl/actor.py was changed since; its original is (\S+)\n") as raised:
        migrate(sample.request(), planner)
    assert actor.read_bytes() == b"mine = 1\n"
    original = Path(str(raised.value).split("its original is ")[1].split("\n")[0])
    shutil.copy(original, actor)
    assert undo(sample.root) == []
    assert sample.status() == []
    assert state.load().pending is None


def test_a_change_in_a_file_whose_turn_had_not_come_is_kept(sample: Sample) -> None:
    killed_half_way(sample)
    (sample.root / CHANGED[1]).write_bytes(b"mine = 1\n")
    assert undo(sample.root) == [CHANGED[0]]
    assert (sample.root / CHANGED[1]).read_bytes() == b"mine = 1\n"


def test_outside_git_a_killed_run_is_found_from_above_and_below(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "above" / "repo")
    (sample.root / "pyproject.toml").unlink()
    killed_half_way(sample)
    assert describe_interrupted(tmp_path / "elsewhere") is None
    assert describe_interrupted(sample.root / "rl") is not None
    recover(tmp_path / "above")
    assert (sample.root / CHANGED[0]).read_bytes() == ACTOR


def test_a_damaged_state_says_what_to_do(sample: Sample) -> None:
    state = locate(sample.root)
    state.folder.mkdir()
    state.file.write_text("{")
    with pytest.raises(UsageError, match=r"is damaged .*; delete "):
        migrate(sample.request(), planner)
    assert sample.status() == []


def killed_undo(sample: Sample) -> None:
    """As after a SIGKILL between the first file and the second, on the way back."""
    migrate(sample.request(), planner)
    state = locate(sample.root)
    rewrites = [NewContent(name, MIGRATED[name], FILES[name]) for name in CHANGED]
    before = state.load()
    made = journal.record(state, rewrites, before, remember=False)
    state.save(replace(before, pending=made.token, replacing=True, undoing=True))
    for index, item in enumerate(rewrites):
        files.create_like(made.target(index), made.beside(index, "new"), item.after)
    made.beside(0, "new").replace(made.target(0))


def test_a_killed_undo_is_finished_by_the_next(sample: Sample) -> None:
    killed_undo(sample)
    assert sample.contents() not in (FILES, MIGRATED)
    assert "an `unpatch undo` of" in str(describe_interrupted(sample.root))
    assert undo(sample.root) == list(CHANGED)
    assert sample.contents() == FILES
    with pytest.raises(UsageError, match="Nothing to undo"):
        undo(sample.root)


def test_a_killed_undo_before_a_migration(sample: Sample) -> None:
    """Who asks for a migration gets it; the undo has never been."""
    killed_undo(sample)
    migrate(sample.request(), planner)
    assert sample.contents() == MIGRATED
    undo(sample.root)
    assert sample.contents() == FILES


@pytest.mark.slow
def test_interrupted_after_the_last_step(sample: Sample) -> None:
    """Ctrl-C, again and again, from the moment everything is written: the command ends as if nobody had."""
    for command, says in ((["migrate"], "Migrated: 2 files"), (["undo"], "Restored 2 files.")):
        done = subprocess.run(
            [sys.executable, str(HERE / "interrupted_command.py"), *command],
            cwd=sample.root,
            capture_output=True,
            text=True,
            timeout=patience(60),
        )
        assert (done.returncode, done.stderr.count("interrupted")) == (0, 0), done.stderr
        assert says in done.stdout
    assert sample.contents() == FILES


@pytest.mark.parametrize("moment", ["before", "after"])
def test_written_while_it_was_replaced(moment: str, sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who has the file open writes just before, or just after, the new content takes its place."""
    state = locate(sample.root)
    rewrites = [NewContent(name, FILES[name], MIGRATED[name]) for name in CHANGED]
    target = sample.root / CHANGED[1]
    with target.open("ab") as editor:
        struck = []

        def strike(event: str, arguments: tuple[object, ...]) -> None:
            if struck or not armed or event != "os.rename" or str(arguments[1]) != str(target):
                return
            struck.append(event)
            if moment == "before":
                editor.write(b"mine = 1\r\n")
                editor.flush()

        real = files.content_of

        def content_of(path: Path) -> bytes | None:
            if struck and moment == "after" and path.suffix == ".old":
                editor.write(b"mine = 1\r\n")
                editor.flush()
            return real(path)

        armed = True
        sys.addaudithook(strike)
        monkeypatch.setattr(transaction.files, "content_of", content_of)
        with pytest.raises(UsageError, match=r"rl/deep/trainer.py changed during the migration"):
            transaction.write(state, rewrites)
        armed = False
    assert target.read_bytes() == FILES[CHANGED[1]] + b"mine = 1\r\n"
    assert (sample.root / CHANGED[0]).read_bytes() == ACTOR
    assert leftovers(target.parent) == []


def test_two_runs_at_the_same_time(sample: Sample) -> None:
    """The other one is a real process that holds the lock until it is told to go on."""
    state = locate(sample.root)
    code = (
        "import sys; from pathlib import Path; from mcore_unpatch.writing.files import exclusive\n"
        "with exclusive(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(state.lock_file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with pytest.raises(UsageError, match=rf"another unpatch is running here \(process {other.pid}, "):
        migrate(sample.request(), planner)
    with pytest.raises(UsageError, match="another unpatch is running"):
        undo(sample.root)
    preview(sample.request(), planner)
    assert sample.status() == []
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert migrate(sample.request(), planner).written


def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot use .*file: File exists"), exclusive(tmp_path / "file" / "lock"):
        pass


def test_a_thread_can_migrate(sample: Sample) -> None:
    thread = threading.Thread(target=migrate, args=(sample.request(), planner))
    thread.start()
    thread.join()
    assert sample.contents() == MIGRATED
