"""A state folder that somebody else prepared: what it names is not believed, deleted, emptied or written to."""

import json
import os
import shutil
from pathlib import Path

import pytest
from sample_repository import CHANGED, FILES, MIGRATED, Sample, planner

from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate.run import migrate, preview
from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import ScanOptions
from mcore_unpatch.writing import files
from mcore_unpatch.writing.journal import Record, State, locate
from mcore_unpatch.writing.transaction import undo

TOKEN = "0123456789ab"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of the user's that has nothing to do with the repository."""
    folder = tmp_path / "victim"
    (folder / "photos").mkdir(parents=True)
    (folder / TOKEN).mkdir()
    (folder / "bashrc").write_text("mine\n")
    return folder


def contents(folder: Path) -> dict[str, str | None]:
    return {str(path): path.read_text() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def plant(state: State, path: str, version: object = 1, **record: object) -> None:
    """A killed migration that claims to have replaced a file: the next run would put the original back."""
    folder = state.folder / TOKEN
    folder.mkdir(parents=True)
    (folder / "0").write_text("planted\n")
    before, after = files.digest(b"planted\n"), files.digest(b"mine\n")
    entries = [{"path": path, "before": before, "after": after}]
    (folder / "journal.json").write_text(json.dumps({"version": version, "entries": entries}))
    for name in ("done.json", "undone.json"):
        (folder / name).write_bytes(Record(str(state.base)).encoded())
    state.file.write_text(
        json.dumps({"version": 1, "base": str(state.base), "pending": TOKEN, "replacing": True, **record})
    )


def check_refused(sample: Sample, victim: Path, says: str) -> None:
    before = contents(victim)
    for command in (lambda: migrate(sample.request(), planner), lambda: undo(sample.root)):
        with pytest.raises(UsageError, match=says):
            command()
    assert contents(victim) == before
    assert sample.contents() == FILES
    scan([sample.root], ScanOptions(jobs=1))  # only reads, and goes on


def test_a_linked_state_folder(sample: Sample, victim: Path) -> None:
    locate(sample.root).folder.symlink_to(victim)
    check_refused(sample, victim, "cannot use .*it is a link")


def test_a_linked_lock(sample: Sample, victim: Path) -> None:
    state = locate(sample.root)
    state.folder.mkdir()
    state.lock_file.symlink_to(victim / "bashrc")
    check_refused(sample, victim, "cannot create the lock .*symbolic links")


def test_a_lock_that_is_also_another_file(sample: Sample, victim: Path) -> None:
    state = locate(sample.root)
    state.folder.mkdir()
    os.link(victim / "bashrc", state.lock_file)
    check_refused(sample, victim, "cannot use the lock .*not a file of its own")


@pytest.mark.parametrize("name", ["lock", "state.json"])
def test_a_pipe(name: str, sample: Sample, victim: Path) -> None:
    state = locate(sample.root)
    state.folder.mkdir()
    os.mkfifo(state.folder / name)
    check_refused(sample, victim, "cannot use ")


def test_a_linked_record(sample: Sample, victim: Path) -> None:
    state = locate(sample.root)
    state.folder.mkdir()
    state.file.symlink_to(victim / "bashrc")
    check_refused(sample, victim, "cannot use .*state.json: a link")


def test_linked_journals_are_not_deleted(sample: Sample, victim: Path) -> None:
    state = locate(sample.root)
    state.folder.mkdir()
    (state.folder / TOKEN).symlink_to(victim)
    (state.folder / "notes").mkdir()
    before = contents(victim)
    assert migrate(sample.request(), planner).written
    assert contents(victim) == before
    assert (state.folder / "notes").is_dir(), "nothing but journals is tidied away"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_state_folder_of_another_user(sample: Sample, victim: Path) -> None:
    state = locate(sample.root)
    state.folder.mkdir()
    os.chown(state.folder, 12345, 12345)
    check_refused(sample, victim, "belongs to another user")


@pytest.mark.parametrize(
    "path", ["../victim/bashrc", "/etc/motd", "rl/../../victim/bashrc", ".git/hooks/x", "rl/.GIT/x", "", "rl//x", "."]
)
def test_a_journal_that_leads_out(path: str, sample: Sample, victim: Path) -> None:
    plant(locate(sample.root), path)
    check_refused(sample, victim, "which no migration writes to")


@pytest.mark.parametrize("link", ["file", "folder"])
def test_a_journal_that_leads_out_through_a_link(link: str, sample: Sample, victim: Path) -> None:
    if link == "file":
        (sample.root / "link").symlink_to(victim / "bashrc")
        plant(locate(sample.root), "link")
    else:
        (sample.root / "link").symlink_to(victim)
        plant(locate(sample.root), "link/bashrc")
    check_refused(sample, victim, "is a link or is reached through one")


def test_a_linked_original(sample: Sample, victim: Path) -> None:
    state = locate(sample.root)
    plant(state, "other.py")
    (sample.root / "other.py").write_bytes(b"mine\n")
    (state.folder / TOKEN / "0").unlink()
    (victim / "secret").write_text("planted\n")
    (state.folder / TOKEN / "0").symlink_to(victim / "secret")
    with pytest.raises(UsageError, match=r"other.py: a link, not a regular file"):
        undo(sample.root)
    assert (sample.root / "other.py").read_bytes() == b"mine\n"


def test_a_linked_second_name_is_not_put_in_place(sample: Sample, victim: Path) -> None:
    state = locate(sample.root)
    plant(state, "other.py")
    (sample.root / "other.py").write_bytes(b"mine\n")
    (sample.root / f".unpatch-{TOKEN}-0.old").symlink_to(victim / "bashrc")
    assert undo(sample.root) == ["other.py"]
    assert not (sample.root / "other.py").is_symlink()
    assert (sample.root / "other.py").read_bytes() == b"planted\n"


def test_a_damaged_original_is_not_put_back(sample: Sample) -> None:
    state = locate(sample.root)
    plant(state, "other.py")
    (sample.root / "other.py").write_bytes(b"mine\n")
    (state.folder / TOKEN / "0").write_text("something else\n")
    with pytest.raises(UsageError, match=r"other.py: its saved original .*/0 is damaged"):
        undo(sample.root)
    assert (sample.root / "other.py").read_bytes() == b"mine\n"


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_a_journal_of_another_version(version: object, sample: Sample, victim: Path) -> None:
    plant(locate(sample.root), "other.py", version)
    check_refused(sample, victim, r"cannot be used \(it is of version .*, not 1\)")


@pytest.mark.parametrize(
    "text", ['{"version": 1, "base": "x", "pending": "../.."}', "[" * 100_000, '{"version": 2}', "3"]
)
def test_a_record_that_cannot_be(text: str, sample: Sample, victim: Path) -> None:
    state = locate(sample.root)
    state.folder.mkdir()
    state.file.write_text(text)
    check_refused(sample, victim, "is damaged or was written by another version")
    with pytest.raises(UsageError, match="damaged"):
        preview(sample.request(), planner)


def test_a_damaged_state_of_another_project_stops_nobody(tmp_path: Path, state_home: Path) -> None:
    sample = Sample(tmp_path / "plain")
    other = state_home / "mcore-unpatch" / "0123456789abcdef"
    other.mkdir(parents=True)
    (other / "state.json").write_text("{")
    assert scan([sample.root], ScanOptions(jobs=1)).errors == []
    assert migrate(sample.request(allow_no_vcs=True), planner).written
    assert undo(sample.root) == list(CHANGED)
    assert (other / "state.json").read_text() == "{"


def test_the_digest_of_an_original_at_undo(sample: Sample) -> None:
    """Whatever happened to the saved originals, nothing but the originals is written back."""
    migrate(sample.request(), planner)
    state = locate(sample.root)
    token = state.load().last
    assert token is not None
    saved = state.journal_folder(token) / "1"
    original = saved.read_bytes()
    for damage in (original + b"x", original[:-1], b"", MIGRATED[CHANGED[1]]):
        saved.write_bytes(damage)
        with pytest.raises(UsageError, match=rf"{CHANGED[1]} \(its saved original .* is damaged\)"):
            undo(sample.root)
        assert sample.contents() == MIGRATED
    saved.unlink()
    with pytest.raises(UsageError, match=rf"{CHANGED[1]} \(No such file or directory\)"):
        undo(sample.root)
    shutil.copy(state.journal_folder(token) / "0", saved)
    with pytest.raises(UsageError, match="is damaged"):
        undo(sample.root)
    saved.write_bytes(original)
    assert undo(sample.root) == list(CHANGED)
    assert sample.contents() == FILES
