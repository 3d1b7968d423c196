"""What can go wrong while files are written goes wrong here: nothing is lost, and the message says what happened."""

import os
import resource
import signal
import stat
import subprocess
import sys
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
from mcore_unpatch.writing.journal import DONE, RUNNING, State, begun, locate, undo

HERE = Path(__file__).parent
# The journal; the new contents; the replacements; the journal's other name: each with its syncs.
FEWEST = {"kill": 28, "kill-undo": 20, "full": 7, "interrupt": 28}


@pytest.mark.slow
@pytest.mark.parametrize("how", FEWEST)
def test_struck_at_every_operation(how: str, tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "fault_driver.py"), how, str(tmp_path / "repo")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(120))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= FEWEST[how]


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


def replace_files(root: Path, rewrites: Sequence[NewContent]) -> None:
    with begun(root) as (state, _):
        state.write(rewrites)


def check_as_it_was(root: Path, rewrites: list[NewContent]) -> None:
    assert all((root / item.path).read_bytes() == item.before for item in rewrites)
    assert not list(root.glob(".unpatch*"))
    assert not locate(root).load(RUNNING)


def test_a_full_disk(small_disk: Path) -> None:
    rewrites = big_rewrites(small_disk, 5)  # 150 KB, and as much again does not fit
    with pytest.raises(UsageError, match="No space left on device; every file is as it was"):
        replace_files(small_disk, rewrites)
    check_as_it_was(small_disk, rewrites)


def test_a_full_disk_for_the_journal(small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(small_disk))
    (work := tmp_path / "work").mkdir()
    rewrites = big_rewrites(work, 12)
    with pytest.raises(UsageError, match="No space left on device; every file is as it was"):
        replace_files(work, rewrites)
    check_as_it_was(work, rewrites)


def test_a_write_that_fails_half_way(tmp_path: Path) -> None:
    """The system's own limit on the size of files, in a process of its own: the fourth file cannot be written whole."""
    (work := tmp_path / "work").mkdir()
    rewrites = big_rewrites(work, 4)
    large = replace(rewrites[3], after=rewrites[3].after * 3)
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        try:
            replace_files(work, [*rewrites[:3], large])
        except UsageError as error:
            os._exit(3 if "File too large; every file is as it was" in str(error) else 4)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    check_as_it_was(work, rewrites)


def test_read_only_files_are_listed_and_nothing_is_written(sample: Sample) -> None:
    for name in CHANGED:
        (sample.root / name).chmod(0o444)
    with pytest.raises(UsageError, match=r"read-only.*\n .*/rl/actor.py\n .*/rl/deep/trainer.py"):
        migrate(sample.request(), planner)
    assert sample.contents() == FILES
    assert stat.S_IMODE((sample.root / CHANGED[0]).stat().st_mode) == 0o444


@pytest.mark.parametrize("what", ["changed", "deleted"])
def test_a_file_that_changes_after_planning_keeps_the_change(what: str, sample: Sample) -> None:
    trainer = sample.root / CHANGED[1]

    def slow(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
        plan = planner(project, findings, options)
        if not plan.edits and what == "changed":  # the second look, just before writing
            trainer.write_bytes(b"mine = 1\n")
        elif not plan.edits:
            trainer.unlink()
        return plan

    says = "changed meanwhile" if what == "changed" else "No such file or directory; every file is as it was"
    with pytest.raises(UsageError, match=says):
        migrate(sample.request(allow_dirty=True), slow)
    assert trainer.exists() == (what == "changed")
    assert (sample.root / CHANGED[0]).read_bytes() == ACTOR
    assert sample.status() == [f" {what[0].upper().replace('C', 'M')} rl/deep/trainer.py"]


def killed_half_way(sample: Sample) -> State:
    """As after a SIGKILL between the first file and the second: the child of `fault_driver` makes all others."""
    pid = os.fork()
    if not pid:
        rewrites = [NewContent(name, FILES[name], MIGRATED[name]) for name in CHANGED]
        seen: list[str] = []

        def strike(event: str, arguments: tuple[object, ...]) -> None:
            if event == "os.rename" and ".unpatch-new" in str(arguments[0]):
                seen.append(event)
                if len(seen) == 2:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(strike)
        replace_files(sample.root, rewrites)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert [sample.contents()[name] for name in CHANGED] == [MIGRATED[CHANGED[0]], FILES[CHANGED[1]]]
    return locate(sample.root)


def test_the_next_run_puts_back_a_killed_one(sample: Sample) -> None:
    killed_half_way(sample)
    with pytest.raises(UsageError, match=r"was interrupted; run `unpatch undo`"):
        preview(sample.request(), planner)
    assert migrate(sample.request(), planner).written
    assert sample.contents() == MIGRATED
    assert undo(sample.root) == list(CHANGED)
    assert sample.contents() == FILES


def test_a_killed_run_leaves_the_migration_before_it(sample: Sample) -> None:
    migrate(sample.request(), planner)
    sample.commit()
    migrated, again = sample.contents(), MIGRATED[CHANGED[0]] + b"x = 1\n"
    pid = os.fork()
    if not pid:
        sys.addaudithook(lambda event, what: os.kill(os.getpid(), 9) if ".unpatch-" in str(what[0]) else None)
        replace_files(sample.root, [NewContent(CHANGED[0], migrated[CHANGED[0]], again)])
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert locate(sample.root).load(RUNNING)
    undo(sample.root)  # of what was killed
    assert sample.contents() == migrated
    assert undo(sample.root) == list(CHANGED)  # and of the one before
    assert sample.contents() == FILES


@pytest.mark.parametrize("mine", [b"mine = 1\n", None])
def test_a_person_decides_when_a_file_changed_after_the_kill(mine: bytes | None, sample: Sample) -> None:
    state, actor = killed_half_way(sample), sample.root / CHANGED[0]
    actor.unlink() if mine is None else actor.write_bytes(mine)
    said = f"rl/actor.py: it was {'changed' if mine else 'deleted'} since; its original is "
    with pytest.raises(UsageError, match=said) as raised:
        migrate(sample.request(allow_dirty=True), planner)
    assert (actor.read_bytes() if actor.exists() else None) == mine
    actor.write_bytes(Path(str(raised.value).split("its original is ")[1].split("\n")[0]).read_bytes())
    undo(sample.root)
    assert sample.status() == []
    assert sorted(file.name for file in state.folder.iterdir()) == ["lock"]


def test_a_change_in_a_file_whose_turn_had_not_come_is_kept(sample: Sample) -> None:
    killed_half_way(sample)
    (sample.root / CHANGED[1]).write_bytes(b"mine = 1\n")
    undo(sample.root)
    assert sample.contents() == {**FILES, CHANGED[1]: b"mine = 1\n"}


def test_a_change_after_a_killed_undo_is_named(sample: Sample) -> None:
    migrate(sample.request(), planner)
    pid = os.fork()
    if not pid:
        sys.addaudithook(lambda event, _: os.kill(os.getpid(), 9) if event == "os.rename" else None)
        undo(sample.root)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    (sample.root / CHANGED[0]).write_bytes(b"mine = 1\n")
    with pytest.raises(UsageError, match=r"rl/actor.py: it was changed since"):
        undo(sample.root)
    assert sample.contents() == {**FILES, CHANGED[0]: b"mine = 1\n"}
    assert (locate(sample.root).folder / "original-0").read_bytes() == ACTOR


def test_undo_puts_back_what_is_as_it_was_written_and_names_the_rest(sample: Sample) -> None:
    migrate(sample.request(), planner)
    (sample.root / CHANGED[0]).write_bytes(b"mine = 1\n")
    with pytest.raises(UsageError, match=r"rl/actor.py: it was changed since; .*\nAll others are as they were"):
        undo(sample.root)
    assert sample.contents() == {**FILES, CHANGED[0]: b"mine = 1\n"}
    (sample.root / CHANGED[0]).write_bytes(MIGRATED[CHANGED[0]])
    assert undo(sample.root) == list(CHANGED)
    assert sample.contents() == FILES
    with pytest.raises(UsageError, match="Nothing to undo"):
        undo(sample.root)


def test_a_damaged_journal_is_not_written_back(sample: Sample) -> None:
    migrate(sample.request(), planner)
    saved = locate(sample.root).folder / DONE
    journal = saved.read_bytes()
    for damage in (b"", journal[:-20], journal.replace(b"return x", b"return y")):
        saved.write_bytes(damage)
        with pytest.raises(UsageError, match=rf"{DONE} cannot be used \(.*\); nothing was changed"):
            undo(sample.root)
        assert sample.contents() == MIGRATED
    saved.write_bytes(journal)
    undo(sample.root)
    assert sample.contents() == FILES


def test_two_runs_at_the_same_time(sample: Sample) -> None:
    """The other one is a real process that holds the lock until it is told to go on."""
    code = (
        "import sys; from pathlib import Path; from mcore_unpatch.writing.journal import begun\n"
        "with begun(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(sample.root)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with pytest.raises(UsageError, match="another unpatch is running here"):
        migrate(sample.request(), planner)
    with pytest.raises(UsageError, match="another unpatch is running"):
        undo(sample.root)
    preview(sample.request(), planner)
    assert sample.status() == []
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert migrate(sample.request(), planner).written


def test_what_is_done_under_the_lock_fails_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), begun(tmp_path / "work"):
        raise BlockingIOError
