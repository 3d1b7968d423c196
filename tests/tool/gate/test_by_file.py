"""What files gave is kept file by file: a change costs what it can reach, and nothing else."""

from collections.abc import Collection
from pathlib import Path

import pytest

from mcore_unpatch.errors import FileError
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.parsed import Parsed
from mcore_unpatch.survey.parallel import ScannedPart, Task, analyse
from mcore_unpatch.survey.remembered import FileMemory

PATCH = "from megatron.core.models.gpt import GPTModel\n"
FILES = {
    "a.py": "import b\n",
    "b.py": "from c import model\n",
    "c.py": f"{PATCH}model = GPTModel()\n",
    "left.py": "import right\n",
    "right.py": "import left\n",
    "patch.py": f"{PATCH}from b import model\nmodel.forward = print\n",
    "by_name.py": f"{PATCH}import importlib\nimportlib.import_module('b').model.forward = print\n",
    "tests/conftest.py": "",
    "tests/sub/test_it.py": "import a\n",
    "alone.py": "",
}


def recalled(
    files: dict[str, str], kept: Path, paths: Collection[str] = ()
) -> tuple[FileMemory, ScannedPart, list[str]]:
    """The memory of files, what it knows of some of them, or all, and what it does not."""
    folders = {str(folder) for path in files for folder in Path(path).parents}
    task = Task(lambda path: files[path].encode(), {*files, *folders}.__contains__, lambda _: ((0, 19),), False)
    memory = FileMemory(kept, task.project(), task.versions)
    known, asked = memory.recall(sorted(paths or files))
    return memory, known, asked


def analysed(files: dict[str, str], kept: Path, paths: Collection[str] = ()) -> list[str]:
    """The files that are analysed, with the others from memory; the findings are those of a whole analysis."""
    memory, whole, asked = recalled(files, kept, paths)
    task = Task(memory.files.read, memory.files.exists, memory.versions, False)
    named = sorted(paths or files)
    (everything,) = analyse(named, [0] * len(named), task, 1, Parsed())
    for part in analyse(asked, [0] * len(asked), task, 1, Parsed()):
        whole.add(part)
    assert sorted(whole.findings, key=lambda one: one.sort_key) == everything.findings
    memory.keep(whole)
    return asked


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        ("alone.py", {"alone.py"}),
        ("a.py", {"a.py", "tests/sub/test_it.py"}),
        ("c.py", {"c.py", "b.py", "a.py", "patch.py", "by_name.py", "tests/sub/test_it.py"}),
        ("left.py", {"left.py", "right.py"}),
        ("tests/conftest.py", {"tests/conftest.py", "tests/sub/test_it.py"}),
    ],
)
def test_what_a_change_reaches(changed: str, reached: set[str], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert set(analysed(FILES, kept)) == set(FILES)
    assert analysed(FILES, kept) == []
    assert set(analysed({**FILES, changed: f"{FILES[changed]}# changed\n"}, kept)) == reached
    assert set(analysed(FILES, kept)) == reached


def test_a_look_at_some_files_leaves_the_others_as_they_were_seen(tmp_path: Path) -> None:
    """What they have read may have changed since: then they are analysed with the next look at them."""
    kept, changed = tmp_path / "kept", {**FILES, "c.py": "model = object()\n"}
    analysed(FILES, kept)
    assert analysed(FILES, kept, ["alone.py", "patch.py"]) == []
    assert analysed(changed, kept, ["alone.py", "patch.py"]) == ["patch.py"]
    assert set(analysed(changed, kept)) == {"c.py", "b.py", "a.py", "patch.py", "by_name.py", "tests/sub/test_it.py"}
    assert analysed(changed, kept) == []


def test_files_that_nobody_else_has_read_are_known_after_one_look(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert analysed(FILES, kept, ["alone.py"]) == ["alone.py"]
    assert analysed(FILES, kept, ["left.py"]) == ["left.py"]
    assert analysed(FILES, kept, ["alone.py", "left.py"]) == []


def test_a_patch_that_another_file_makes_one(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    analysed({**FILES, "c.py": "model = object()\n"}, kept)
    analysed(FILES, kept)
    _, known, _ = recalled(FILES, kept)
    assert [(one.path, one.line) for one in known.findings] == [("by_name.py", 3), ("patch.py", 3)]


def test_errors_and_what_is_judged_are_part_of_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    memory, whole, _ = recalled(FILES, kept)
    whole.errors.append(FileError("a.py", "cannot be read"))
    memory.keep(whole)
    memory, known, asked = recalled(FILES, kept)
    assert (known.errors, asked) == ([FileError("a.py", "cannot be read")], [])
    other = FileMemory(kept, memory.files, lambda path: ((0, 18),) if path == "c.py" else ((0, 19),))
    assert set(other.recall(FILES)[1]) >= {"a.py", "b.py", "c.py", "patch.py"}


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{", '{"entries": {}, "links": {}}', '{"entries": 3, "links": {}, "digests": {}}'),
        '{"entries": {"a.py": 1}, "links": {}, "digests": {}}',
    ],
)
def test_what_is_broken_is_not_believed(text: str, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text(text)
    project = Project(lambda _: False, lambda _: b"")
    assert FileMemory(tmp_path / "kept", project, lambda _: ()).recall(["a.py"])[1] == ["a.py"]
