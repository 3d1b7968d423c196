"""A state folder that somebody else prepared: what it names is not believed, deleted, emptied or written to."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from sample_repository import FILES, Sample, planner

from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate.run import migrate, preview
from mcore_unpatch.writing.journal import DONE, RUNNING, digest, locate, undo

ENTRY = {
    "path": "other.py",
    "original": "planted\n",
    "mode": 0o644,
    "owner": [-1, -1],
    "before": digest(b"planted\n"),
    "after": digest(b"mine\n"),
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of the user's that has nothing to do with the repository."""
    (folder := tmp_path / "victim").mkdir()
    (folder / "bashrc").write_text("mine\n")
    return folder


def contents(folder: Path) -> dict[str, str | None]:
    return {str(path): path.read_text() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def plant(sample: Sample, plan: Any, name: str = RUNNING) -> Path:
    """A killed migration that claims to have replaced a file: the next run would put the original back."""
    (folder := locate(sample.root).folder).mkdir()
    (folder / name).write_text(plan if isinstance(plan, str) else json.dumps(plan))
    return folder


def check_refused(sample: Sample, victim: Path, says: str) -> None:
    before = contents(victim)
    for command in (lambda: migrate(sample.request(), planner), lambda: undo(sample.root)):
        with pytest.raises(UsageError, match=says):
            command()
    assert contents(victim) == before
    assert sample.contents() == FILES


@pytest.mark.parametrize("name", ["", "lock", RUNNING])
def test_links_where_our_own_things_stand(name: str, sample: Sample, victim: Path) -> None:
    folder = locate(sample.root).folder
    folder.mkdir() if name else None
    (folder / name if name else folder).symlink_to(victim / "bashrc" if name else victim)
    check_refused(sample, victim, "cannot (use|be used)")


def test_a_lock_that_is_also_another_file(sample: Sample, victim: Path) -> None:
    (folder := locate(sample.root).folder).mkdir()
    os.link(victim / "bashrc", folder / "lock")
    migrate(sample.request(), planner)
    undo(sample.root)
    assert (victim / "bashrc").read_text() == "mine\n"


def test_a_pipe(sample: Sample, victim: Path) -> None:
    (folder := locate(sample.root).folder).mkdir()
    os.mkfifo(folder / RUNNING)
    check_refused(sample, victim, "cannot be used")


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
    check_refused(sample, victim, "which no migration writes to|cannot be used")
    with pytest.raises(UsageError, match="cannot be used"):
        preview(sample.request(), planner)


@pytest.mark.parametrize(
    "plan",
    [
        *("", "{", "[" * 100_000, "3", "[3]", '[{"path": "a"}]', '{"a": 1}'),
        *([{**ENTRY, name: 3}] for name in ("original", "before")),
        *([{**ENTRY, "more": 1}], [{**ENTRY, "original": "another\n"}], [{**ENTRY, "original": "\u20ac"}]),
    ],
)
@pytest.mark.parametrize("name", [RUNNING, DONE])
def test_a_damaged_journal(name: str, plan: Any, sample: Sample) -> None:
    plant(sample, plan, name)
    with pytest.raises(UsageError, match=r"cannot be used \((.|\n)*\); nothing was changed"):
        undo(sample.root)
    assert sample.contents() == FILES


@pytest.mark.parametrize("inner", ["", "bashrc"])
def test_a_journal_that_leads_out_through_a_link(inner: str, sample: Sample, victim: Path) -> None:
    (sample.root / "link").symlink_to(victim if inner else victim / "bashrc")
    plant(sample, [{**ENTRY, "path": f"link/{inner}".rstrip("/")}])
    check_refused(sample, victim, "is a link or is reached through one")


def test_links_where_copies_wait(sample: Sample, victim: Path) -> None:
    plant(sample, [ENTRY])
    (sample.root / "other.py").write_bytes(b"mine\n")
    for name in ("new", "old"):
        (sample.root / f".unpatch-{name}-other.py").symlink_to(victim / "bashrc")
    undo(sample.root)
    assert not (sample.root / "other.py").is_symlink()
    assert (sample.root / "other.py").read_bytes() == b"planted\n"
    assert (victim / "bashrc").read_text() == "mine\n"


@pytest.mark.parametrize("field", ["mode", "owner", "after"])
def test_a_field_that_cannot_be(field: str, sample: Sample) -> None:
    plant(sample, [{**ENTRY, field: "x"}])
    (sample.root / "other.py").write_bytes(b"mine\n")
    with pytest.raises(UsageError, match=r"other\.py|cannot be used"):
        undo(sample.root)
    assert (sample.root / "other.py").read_bytes() == b"mine\n"
