"""Whether hunks apply is what `git apply` says, also of series of patch files."""

import subprocess
from pathlib import Path

import pytest
from checking import write_files
from repository import Repository

from mcore_unpatch.scan import Options, scan
from mcore_unpatch.scanner.shapes.patch_files import Source
from mcore_unpatch.scanner.sources.applying import APPLIES, Tree
from mcore_unpatch.scanner.sources.hunks import read

NAME = "megatron/core/own.py"
LINES = [f"line{number} = {number}" for number in range(1, 31)]
TEXT = "\n".join(LINES) + "\n"
HEAD = f"diff --git a/{NAME} b/{NAME}\n--- a/{NAME}\n+++ b/{NAME}\n"


def edited(*changes: tuple[int, str | None]) -> str:
    """The file with other lines; None for one that is taken away."""
    lines: list[str | None] = list(LINES)
    for number, text in changes:
        lines[number - 1] = text
    return "".join(f"{line}\n" for line in lines if line is not None)


# The file that a patch was made for becomes that; then the patch is held against other files.
EDITS = {
    "in the middle": edited((15, "other = 15")),
    "at the beginning": edited((1, "other = 1")),
    "at the end": edited((30, "other = 30")),
    "more at the end": TEXT + "line31 = 31\n",
    "without a line end": TEXT.removesuffix("\n"),
    "two places": edited((5, None), (25, "other = 25\nmore = 26")),
    "near each other": edited((12, "other = 12"), (19, None)),
    "everything": "nothing = 0\n",
}
OTHERS = {
    "the same": TEXT,
    "lower down": "# more\n" * 9 + TEXT,
    "longer": TEXT + "# more\n" * 9,
    "twice": TEXT * 2,
    "without a line end": TEXT.removesuffix("\n"),
    "other lines around": edited((14, "elsewhere = 14"), (26, "elsewhere = 26"), (3, "elsewhere = 3")),
    "empty": "",
}


def diff_of(folder: Path, old: str, new: str, *options: str) -> str:
    repository = Repository(folder)
    repository.commit({NAME: old})
    (folder / NAME).write_bytes(new.encode())
    return repository.git("diff", *options) + "\n"


def words(folder: Path, megatron: Path, **patches: str) -> list[str]:
    """For each finding how it fits: `applies`, `done`, `fails`."""
    write_files(folder, {f"patches/{name.replace('_', '.')}": text for name, text in patches.items()})
    found = scan([folder / "patches"], Options(jobs=1, source=Source(megatron, "0.19.2"))).findings
    said = {"; applies to": "applies", "no longer": "fails", "combined": "fails"}
    known = [next((word for part, word in said.items() if part in one.message), "") for one in found]
    return [word or ("done" if one.done else "") for word, one in zip(known, found, strict=True)]


def git_applies(megatron: Path, text: str, *options: str) -> bool:
    command = ["git", "apply", "--check", *options, "-"]
    return (
        subprocess.run(command, cwd=megatron, input=text, text=True, check=False, capture_output=True).returncode == 0
    )


@pytest.mark.parametrize("options", [(), ("-U0",)], ids=str)
@pytest.mark.parametrize("edit", EDITS)
def test_as_git_says(edit: str, options: tuple[str, ...], tmp_path: Path) -> None:
    text = diff_of(tmp_path / "made", TEXT, EDITS[edit], *options)
    megatron = tmp_path / "megatron"
    for name, other in (OTHERS | {"done": EDITS[edit]}).items():
        write_files(megatron, {NAME: other.encode()})
        said = set(words(tmp_path / "own", megatron, a_patch=text))
        applies = git_applies(megatron, text)
        assert (said == {"applies"}) is applies, name
        if not applies:
            assert (said == {"done"}) is git_applies(megatron, text, "-R"), name


def test_line_ends_are_not_compared(tmp_path: Path) -> None:
    """Git converts them as it is told to; what a hunk does is the same."""
    text = diff_of(tmp_path / "made", TEXT, EDITS["in the middle"])
    write_files(tmp_path / "megatron", {NAME: TEXT.replace("\n", "\r\n").encode()})
    assert words(tmp_path / "own", tmp_path / "megatron", a_patch=text) == ["applies"]


class TestFiles:
    """Files that come, go and move."""

    NEW = f"diff --git a/{NAME} b/{NAME}\nnew file mode 100644\n--- /dev/null\n+++ b/{NAME}\n@@ -0,0 +1 @@\n+x = 1\n"

    @pytest.mark.parametrize(
        ("there", "expected"), [({}, "applies"), ({NAME: "x = 1\n"}, "done"), ({NAME: "x = 2\n"}, "fails")]
    )
    def test_added(self, there: dict[str, str], expected: str, tmp_path: Path) -> None:
        write_files(tmp_path / "megatron", there | {"megatron/core/other.py": ""})
        assert words(tmp_path / "own", tmp_path / "megatron", a_patch=self.NEW) == [expected]
        assert git_applies(tmp_path / "megatron", self.NEW) is (expected == "applies")

    def test_moved_and_changed(self, tmp_path: Path) -> None:
        repository = Repository(tmp_path / "made")
        repository.commit({NAME: TEXT})
        repository.git("mv", NAME, "megatron/core/new.py")
        (tmp_path / "made/megatron/core/new.py").write_text(EDITS["in the middle"])
        repository.git("add", "-A")
        text = repository.git("diff", "--cached", "-M") + "\n"
        assert "rename from" in text
        write_files(tmp_path / "megatron", {NAME: TEXT})
        assert words(tmp_path / "own", tmp_path / "megatron", a_patch=text) == ["applies"]
        write_files(tmp_path / "megatron", {NAME: edited((15, "no = 1"))})
        assert words(tmp_path / "own", tmp_path / "megatron", a_patch=text) == ["fails"]


class TestSeries:
    """Patch files that are applied one after the other."""

    @pytest.fixture
    def two(self, tmp_path: Path) -> tuple[str, str]:
        """Two changes of one place, the second on top of the first, as mails without names of contents."""
        repository = Repository(tmp_path / "made")
        repository.commit({NAME: TEXT})
        repository.commit({NAME: edited((15, "one = 1"))})
        repository.commit({NAME: edited((15, "two = 2"))})
        first, second = (
            repository.git("format-patch", "--stdout", "-1", commit) + "\n" for commit in ("HEAD~1", "HEAD")
        )
        write_files(tmp_path / "megatron", {NAME: TEXT})
        return first, second

    def test_in_one_file(self, two: tuple[str, str], tmp_path: Path) -> None:
        assert words(tmp_path / "own", tmp_path / "megatron", a_patch="".join(two)) == ["applies"]

    def test_by_contents(self, two: tuple[str, str], tmp_path: Path) -> None:
        assert words(tmp_path / "own", tmp_path / "megatron", b_patch=two[0], a_patch=two[1]) == ["applies"] * 2

    def test_by_number(self, two: tuple[str, str], tmp_path: Path) -> None:
        first, second = ("\n".join(line for line in one.split("\n") if not line.startswith("index ")) for one in two)
        assert words(tmp_path / "own", tmp_path / "megatron", b_patch=first, a_patch=second) == ["fails", "applies"]
        numbered = {"0001-b_patch": first, "0002-a_patch": second}
        assert words(tmp_path / "new", tmp_path / "megatron", **numbered) == ["applies"] * 2

    def test_by_series(self, two: tuple[str, str], tmp_path: Path) -> None:
        first, second = ("\n".join(line for line in one.split("\n") if not line.startswith("index ")) for one in two)
        listed = {"b_patch": first, "a_patch": second, "series": "# ours\nb.patch\na.patch -p1\n"}
        assert words(tmp_path / "own", tmp_path / "megatron", **listed) == ["applies"] * 2


def test_a_hunk_does_not_lean_on_another_of_the_same_file(tmp_path: Path) -> None:
    hunk = "@@ -14,3 +14,3 @@\n line14 = 14\n-{0} = 15\n+{1} = 15\n line16 = 16\n"
    text = HEAD + hunk.format("line15", "one") + hunk.format("one", "two")
    write_files(tmp_path / "megatron", {NAME: TEXT})
    assert words(tmp_path / "own", tmp_path / "megatron", a_patch=text) == ["fails"]
    assert not git_applies(tmp_path / "megatron", text)


BLOCK = "def f():\n    a = 1\n    b = 2\n    return a\n\n\n"


@pytest.mark.parametrize("options", [(), ("-U1",)], ids=str)
@pytest.mark.parametrize("above", [0, 1, 4, 9], ids="{} lines above".format)
@pytest.mark.parametrize("chosen", [0, 2, 5])
def test_of_several_places_the_nearest_is_taken(
    chosen: int, above: int, options: tuple[str, ...], tmp_path: Path
) -> None:
    blocks = [BLOCK] * 6
    blocks[chosen] = BLOCK.replace("b = 2", "b = 3")
    text = diff_of(tmp_path / "made", BLOCK * 6, "".join(blocks), *options)
    megatron = tmp_path / "megatron"
    write_files(megatron, {NAME: ("# more\n" * above + BLOCK * 6).encode()})
    if not git_applies(megatron, text):
        return
    tree = Tree(megatron)
    [file] = read(text.encode())
    assert [fit.word for fit in tree.apply(file, NAME, NAME)] == [APPLIES]
    subprocess.run(["git", "apply", "-"], cwd=megatron, input=text, text=True, check=True)
    assert tree.lines(NAME) == (megatron / NAME).read_text().splitlines()
