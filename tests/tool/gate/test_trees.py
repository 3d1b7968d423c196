"""Two trees of a repository, as git tells of them: what was renamed, what changed, what is staged, where links lead."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command import unpatch
from repository import Repository

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.gate import baseline, compare, pinned
from mcore_unpatch.gate.baseline import Counts
from mcore_unpatch.repository import git

LONG = "".join(f"x{number} = {number}\n" for number in range(30))


@pytest.mark.parametrize("count", range(4))
def test_every_file_that_was_renamed(count: int, repository: Repository) -> None:
    old = repository.commit({f"old{number}.py": f"# {number}\n{LONG * (number + 1)}" for number in range(3)})
    for number in range(count):
        repository.git("mv", f"old{number}.py", f"new {number}.py")
    repository.commit({"added.py": "y = 1\n"})
    expected = {f"new {number}.py": f"old{number}.py" for number in range(count)}
    assert compare.renames(repository.path, [old]) == compare.renames(repository.path, [old, old]) == expected


def test_what_each_of_several_commits_has_otherwise(repository: Repository) -> None:
    first = repository.commit({"a.py": "1\n", "b.py": "1\n", "c.py": "1\n", "gone.py": "1\n"})
    second = repository.commit({"a.py": "2\n"})
    repository.git("rm", "--quiet", "gone.py")
    repository.commit({"b.py": "2\n", "new.py": "1\n"})
    assert compare.changed(repository.path, [first]) == ["a.py", "b.py", "new.py"]
    assert compare.changed(repository.path, [second]) == ["b.py", "new.py"]
    assert compare.changed(repository.path, [first, second]) == ["b.py", "new.py"]


def test_what_is_staged_and_stands_there_otherwise(repository: Repository) -> None:
    assert compare.staged_otherwise(repository.path) == {}
    repository.commit({"a.py": "1\n", "b.py": "1\n", "gone.py": "1\n", "notes.txt": "1\n"})
    (repository.path / "link.py").symlink_to("a.py")
    repository.write({"a.py": "staged\n", "b.py": "staged\n", "gone.py": "staged\n", "notes.txt": "staged\n"})
    repository.git("add", "--all")
    repository.write({"a.py": "otherwise\n", "notes.txt": "otherwise\n"})
    (repository.path / "gone.py").unlink()
    (repository.path / "link.py").unlink()
    assert compare.staged_otherwise(repository.path) == {"a.py": b"staged\n", "gone.py": b"staged\n"}


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("plain", "plain"),
        ("one", "target"),
        ("two", "target"),
        ("folder/one", "target"),
        ("way/inner", "folder/inner"),
        ("way/one", "target"),
        ("out", ""),
        ("root", ""),
        ("loop", ""),
        ("sub/out", ""),
    ],
)
def test_where_a_link_of_a_tree_leads(path: str, end: str) -> None:
    leads = {
        "one": "target",
        "two": "one",
        "folder/one": "../target",
        "way": "folder",
        "out": "../target",
        "sub/out": "../../target",
        "root": "/target",
        "loop": "loop",
    }
    assert compare._end(path, leads) == end


def test_what_a_scan_of_a_tree_would_look_at(repository: Repository) -> None:
    repository.write({"a.py": "a\n", "fix.patch": "p\n", "notes.txt": "n\n", "script": "s\n", "pkg/b.py": "b\n"})
    for name, to in {"again.py": "a.py", "text.py": "script", "deep.py": "pkg/../script", "nowhere.py": "x"}.items():
        (repository.path / name).symlink_to(to)
    blobs = compare.blobs_at(repository.path, repository.commit())
    contents = compare.contents_of(repository.path, blobs.values())
    assert {path: contents[name] for path, name in blobs.items()} == {
        "a.py": b"a\n",
        "deep.py": b"s\n",
        "fix.patch": b"p\n",
        "pkg/b.py": b"b\n",
        "plain.py": b"x = 1\n",
        "text.py": b"s\n",
    }


PATCHES = """\
from megatron.core.models.gpt import GPTModel
def install():
    GPTModel.forward = print
"""
CALL = "from patches import install\ninstall()\n"


@pytest.mark.parametrize("before", ["same", "another", "none"])
@pytest.mark.parametrize("staged", [False, True])
def test_a_call_that_moves_to_another_file_wakes_nothing(before: str, staged: bool, repository: Repository) -> None:
    """The file that called is gone with the change, and was there before it."""
    names = {"same": "train.py", "another": "old.py", "none": "none.py"}
    repository.commit({"patches.py": PATCHES, names[before]: CALL if before != "none" else "x = 1\n"})
    repository.git("branch", "--force", "main")
    if before == "another":
        repository.git("rm", "--quiet", "old.py")
    repository.write({"train.py": CALL + "\n# now\n"})
    if staged:
        repository.git("add", "--all")
    else:
        repository.commit()
    found = unpatch("check", "--base", "main", "--output-format", "json", cwd=repository.path).json["findings"]
    assert [Path(one["path"]).name for one in found] == ["patches.py"] * (before == "none")


@pytest.mark.parametrize(
    ("then", "now", "there", "more"),
    [
        ({}, {}, 0, {}),
        ({}, {"p.py": {"MCU601": 1}}, 0, {"p.py": {"MCU601": 1}}),
        ({}, {"p.py": {"MCU601": 1}}, 1, {}),
        ({"p.py": {"MCU601": 1}}, {"p.py": {"MCU601": 1}}, 0, {}),
        ({"p.py": {"MCU601": 1}}, {"p.py": {"MCU601": 3}}, 0, {"p.py": {"MCU601": 2}}),
        ({"p.py": {"MCU601": 1}}, {"p.py": {"MCU601": 3}}, 2, {"p.py": {"MCU601": 1}}),
        ({"p.py": {"MCU601": 3}}, {"p.py": {"MCU601": 1}}, 0, {}),
        ({"p.py": {"MCU601": 1}}, {"q.py": {"MCU601": 1}}, 0, {"q.py": {"MCU601": 1}}),
        ({"old.py": {"MCU601": 1}}, {"p.py": {"MCU601": 1}}, 0, {}),
        ({"p.py": {"MCU601": 1}}, {"p.py": {"MCU602": 1}}, 0, {"p.py": {"MCU602": 1}}),
    ],
)
def test_what_a_change_adds_to_a_baseline(
    then: Counts, now: Counts, there: int, more: Counts, repository: Repository
) -> None:
    """Neither accepted at the base, nor there; `p.py` was called `old.py`."""
    file = repository.path / "b.json"
    texts = [json.dumps({"version": 1, "counts": counts}) for counts in (then, now)]
    commits = [repository.commit({"b.json": text}) for text in texts]
    patch = Finding("MCU601", "p.py", 1, 1, 1, "megatron.core.utils.divide", "module-attr", "")
    found = baseline.added(
        file, repository.path, commits[:1], {"p.py": "old.py"} if "old.py" in then else {}, [patch] * there
    )
    assert found == more


@pytest.mark.parametrize("names", [(), ("HEAD",), ("objects",), ("HEAD", "objects")], ids=str)
def test_a_folder_that_is_shaped_like_a_bare_repository(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    words = "is a bare repository: run this" if len(names) == 2 else "is not in a git work tree"
    with pytest.raises(git.GitError, match=words):
        git.work_tree(tmp_path)


def test_a_pin_speaks_for_its_own_patch_alone() -> None:
    one, other = (
        Finding("MCU601", "p.py", 1, 1, 1, f"megatron.core.utils.{name}", "module-attr", "")
        for name in ("one", "other")
    )
    pin = SimpleNamespace(patched=True, where=())
    lock: Any = SimpleNamespace(pins={one.target: pin})
    for findings in ([one, other], [other, one], [one, other, one]):
        assert pinned._unaccepted(findings, lock)[0] == [other]
    pin.where = (one.where,)
    assert pinned._unaccepted([one, other], lock) == ([other], Counter())
    assert len(pinned._unaccepted([one, one, other], lock)[0]) == 2
    pin.patched = False
    assert pinned._unaccepted([one, other], lock)[0] == [one, other]
