"""A state folder that somebody else prepared: what it names is not believed, deleted, emptied or written to."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from sample_repository import FILES, Sample, planner

from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate.run import migrate
from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import ScanOptions
from mcore_unpatch.writing import files
from mcore_unpatch.writing.journal import locate, undo

TOKEN = "0123456789ab"
ENTRY = {"path": "other.py", "before": files.digest(b"planted\n"), "after": files.digest(b"mine\n")}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of the user's that has nothing to do with the repository."""
    folder = tmp_path / "victim"
    (folder / TOKEN).mkdir(parents=True)
    (folder / "bashrc").write_text("mine\n")
    return folder


def contents(folder: Path) -> dict[str, str | None]:
    return {str(path): path.read_text() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def plant(sample: Sample, plan: Any = None, **record: object) -> Path:
    """A killed migration that claims to have replaced a file: the next run would put the original back."""
    folder = locate(sample.root).folder
    (folder / TOKEN).mkdir(parents=True)
    (folder / TOKEN / "0").write_text("planted\n")
    text = plan if isinstance(plan, str) else json.dumps([ENTRY] if plan is None else plan)
    (folder / TOKEN / "plan.json").write_text(text)
    known = {"journal": TOKEN, "stage": "replacing", **record}
    (folder / "state.json").write_text(json.dumps({"version": 2, "state": known}))
    return folder


def check_refused(sample: Sample, victim: Path, says: str) -> None:
    before = contents(victim)
    for command in (lambda: migrate(sample.request(), planner), lambda: undo(sample.root)):
        with pytest.raises(UsageError, match=says):
            command()
    assert contents(victim) == before
    assert sample.contents() == FILES
    scan([sample.root], ScanOptions(jobs=1))  # only reads, and goes on


@pytest.mark.parametrize("name", ["", "lock", "state.json", TOKEN])
def test_links_where_our_own_things_stand(name: str, sample: Sample, victim: Path) -> None:
    folder = locate(sample.root).folder
    if name == TOKEN:
        plant(sample).joinpath(TOKEN).rename(sample.root.parent / "moved")
        (folder / TOKEN).symlink_to(sample.root.parent / "moved")
    else:
        folder.mkdir() if name else None
        (folder / name if name else folder).symlink_to(victim / "bashrc" if name else victim)
    check_refused(sample, victim, "cannot (use|be used)|cannot be used|link")


def test_a_lock_that_is_also_another_file(sample: Sample, victim: Path) -> None:
    (folder := locate(sample.root).folder).mkdir()
    os.link(victim / "bashrc", folder / "lock")
    check_refused(sample, victim, "cannot use the lock .*not a file of its own")


@pytest.mark.parametrize("name", ["lock", "state.json"])
def test_a_pipe(name: str, sample: Sample, victim: Path) -> None:
    (folder := locate(sample.root).folder).mkdir()
    os.mkfifo(folder / name)
    check_refused(sample, victim, "cannot (use|be used)")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_state_folder_of_another_user(sample: Sample, victim: Path) -> None:
    (folder := locate(sample.root).folder).mkdir()
    os.chown(folder, 12345, 12345)
    check_refused(sample, victim, "belongs to another user")


@pytest.mark.parametrize(
    "path", ["../victim/bashrc", "/etc/motd", "rl/../../x", ".git/hooks/x", "rl/.GIT/x", "", "rl//x", ".", "a\0b", 3]
)
def test_a_journal_that_leads_out(path: object, sample: Sample, victim: Path) -> None:
    plant(sample, [{**ENTRY, "path": path}])
    check_refused(sample, victim, "which no migration writes to|it is damaged")


@pytest.mark.parametrize("plan", ["{", "[" * 100_000, "3", "[3]", '[{"path": "a"}]', '{"a": 1}'])
def test_a_damaged_plan(plan: str, sample: Sample, victim: Path) -> None:
    plant(sample, plan)
    check_refused(sample, victim, r"cannot be used \(.*\); nothing was changed")


@pytest.mark.parametrize("inner", ["", "bashrc"])
def test_a_journal_that_leads_out_through_a_link(inner: str, sample: Sample, victim: Path) -> None:
    (sample.root / "link").symlink_to(victim if inner else victim / "bashrc")
    plant(sample, [{**ENTRY, "path": f"link/{inner}".rstrip("/")}])
    check_refused(sample, victim, "is a link or is reached through one")


def test_a_linked_original_and_a_linked_copy(sample: Sample, victim: Path) -> None:
    folder = plant(sample)
    (sample.root / "other.py").write_bytes(b"mine\n")
    (sample.root / f".unpatch-{TOKEN}-0").symlink_to(victim / "bashrc")
    (folder / TOKEN / "0").rename(victim / "secret")
    (folder / TOKEN / "0").symlink_to(victim / "secret")
    with pytest.raises(UsageError, match=r"other.py: .*/0: a link, not a regular file"):
        undo(sample.root)
    assert (sample.root / "other.py").read_bytes() == b"mine\n"
    (folder / TOKEN / "0").unlink()
    (folder / TOKEN / "0").write_text("planted\n")
    undo(sample.root)
    assert not (sample.root / "other.py").is_symlink()
    assert (sample.root / "other.py").read_bytes() == b"planted\n"
    assert (victim / "bashrc").read_text() == "mine\n"


@pytest.mark.parametrize("record", [{"journal": "../.."}, {"stage": "x"}, {"more": 1}, {"journal": 3}])
def test_a_record_that_cannot_be(record: dict[str, object], sample: Sample, victim: Path) -> None:
    plant(sample, **record)
    check_refused(sample, victim, "state.json cannot be used")


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "3", '{"version": 1, "state": {}}'])
def test_a_damaged_record(text: str, sample: Sample, victim: Path) -> None:
    plant(sample).joinpath("state.json").write_text(text)
    check_refused(sample, victim, "state.json cannot be used")


def test_nothing_but_journals_is_tidied_away(sample: Sample, victim: Path) -> None:
    (folder := locate(sample.root).folder).mkdir()
    (folder / TOKEN).symlink_to(victim)
    (folder / "notes").mkdir()
    before = contents(victim)
    assert migrate(sample.request(), planner).written
    assert contents(victim) == before
    assert (folder / "notes").is_dir()
