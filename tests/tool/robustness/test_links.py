"""Links, within a repository and out of it: what exists, what is opened, and where a project begins."""

import os
from pathlib import Path

import pytest
from checking import write_files
from repository import Repository

from mcore_unpatch.repository import reading
from mcore_unpatch.repository.discover import project_root

INSIDE, OUTSIDE = b"inside", b"outside"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A folder with links of every kind; what a path ends in says what must come of it."""
    write_files(tmp_path, {"top/a": INSIDE, "top/folder/a": INSIDE, "beside/a": OUTSIDE, "top-not/a": OUTSIDE})
    top = tmp_path / "top"
    links = {
        "link": "a",
        "folder/up": "../a",
        "twice": "folder/up",
        "way": "folder",
        "round": "../top/folder",
        "out": "../beside/a",
        "near": "../top-not/a",
        "away": "../beside",
        "out-and-in": "../beside/back/a",
        "../beside/back": "../top",
        "broken": "nowhere",
        "folder/broken": "../nowhere",
        "loop": "loop",
        "ring": "gnir",
        "gnir": "ring",
        "whole": ".",
    }
    for name, leads_to in links.items():
        (top / name).symlink_to(leads_to)
    return top


WITHIN = ["a", "folder/a", "link", "folder/up", "twice", "way/a", "way/up", "round/a", "out-and-in", "whole/a"]
FOLDERS = ["folder", "way", "round", "whole", "."]
NOT_THERE = ["missing", "folder/missing", "way/missing", "broken", "folder/broken", "loop", "ring", "loop/a", "a/b"]
ELSEWHERE = ["out", "near", "away/a", "away/back/../a", "../beside/a", "whole/../../beside/a"]


@pytest.mark.parametrize("path", WITHIN)
def test_a_file_that_lies_within(path: str, top: Path) -> None:
    assert reading.exists(top, path)
    with os.fdopen(reading.descriptor(top, path), "rb") as file:
        assert file.read() == INSIDE
    assert reading.read_below(top, top / path) == INSIDE


@pytest.mark.parametrize("path", FOLDERS)
def test_a_folder_is_there_and_no_file(path: str, top: Path) -> None:
    assert reading.exists(top, path)
    with pytest.raises(IsADirectoryError):
        reading.descriptor(top, path)


@pytest.mark.parametrize("path", NOT_THERE)
def test_what_is_not_there(path: str, top: Path) -> None:
    assert not reading.exists(top, path)
    with pytest.raises(OSError, match=r"No such file|Too many levels|Not a directory"):
        reading.descriptor(top, path)


@pytest.mark.parametrize("path", ELSEWHERE)
def test_what_lies_elsewhere(path: str, top: Path) -> None:
    assert not reading.exists(top, path)
    with pytest.raises(OSError, match="a link leads out of the repository"):
        reading.descriptor(top, path)


def test_a_name_that_no_file_can_have(top: Path) -> None:
    assert not reading.exists(top, "a\0")
    assert reading.kind(f"{top}/a\0") is None


def test_a_file_that_must_be_no_link(top: Path) -> None:
    assert reading.read_own(top / "a") == INSIDE
    for name in ("link", "out", "broken", "loop"):
        with pytest.raises(OSError, match="a link, not a regular file"):
            reading.read_own(top / name)


@pytest.mark.parametrize("name", ["pyproject.toml", "setup.py", "setup.cfg"])
@pytest.mark.parametrize("broken", [False, True])
def test_a_project_begins_at_the_nearest_project_file(name: str, broken: bool, tmp_path: Path) -> None:
    write_files(tmp_path, {"a/b/c/x.py": "", "a/pyproject.toml": "", "requirements.txt": ""})
    marker = tmp_path / "a/b" / name
    marker.symlink_to("nowhere") if broken else marker.write_text("")
    assert project_root(tmp_path / "a/b/c") == project_root(tmp_path / "a/b") == tmp_path / "a/b"
    assert project_root(tmp_path / "a") == tmp_path / "a"
    assert project_root(tmp_path) == tmp_path


def test_a_work_tree_is_a_project(tmp_path: Path) -> None:
    Repository(tmp_path / "a").write({"b/pyproject.toml": "", "b/c/x.py": ""})
    assert project_root(tmp_path / "a/b/c") == tmp_path / "a"
    assert reading.boundary(tmp_path / "a/b/c") == tmp_path / "a"
    assert reading.boundary(tmp_path) == tmp_path


def test_a_work_tree_that_the_environment_names_is_no_project_of_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Repository(tmp_path / "a").write({"b/x.py": ""})
    write_files(tmp_path, {"other/setup.cfg": "", "other/c/x.py": ""})
    monkeypatch.setenv("GIT_DIR", os.fspath(tmp_path / "a/.git"))
    monkeypatch.setenv("GIT_WORK_TREE", os.fspath(tmp_path / "a"))
    monkeypatch.chdir(tmp_path / "a")
    assert project_root(tmp_path / "a/b") == tmp_path / "a"
    assert project_root(tmp_path / "other/c") == tmp_path / "other"
