"""A tree of a repository, as git tells of it."""

from pathlib import Path

import pytest
from repository import Repository

from mcore_unpatch.gate import compare
from mcore_unpatch.repository import git


def test_what_a_scan_of_a_tree_would_look_at(repository: Repository) -> None:
    repository.write({"a.py": "a\n", "fix.patch": "p\n", "notes.txt": "n\n", "script": "s\n", "pkg/b.py": "b\n"})
    for name, to in {"again.py": "a.py", "text.py": "script", "deep.py": "pkg/../script", "nowhere.py": "x"}.items():
        (repository.path / name).symlink_to(to)
    blobs = compare.blobs_at(repository.path, repository.commit())
    contents = compare.contents_of(repository.path, blobs.values())
    assert {path: contents[name] for path, name in blobs.items()} == {
        "a.py": b"a\n",
        "fix.patch": b"p\n",
        "pkg/b.py": b"b\n",
        "plain.py": b"x = 1\n",
    }


@pytest.mark.parametrize("names", [(), ("HEAD",), ("objects",), ("HEAD", "objects")], ids=str)
def test_a_folder_that_is_shaped_like_a_bare_repository(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    words = "is a bare repository: run this" if len(names) == 2 else "is not in a git work tree"
    with pytest.raises(git.GitError, match=words):
        git.work_tree(tmp_path)
