"""`.patch` and `.diff` files: one finding each, the definitions they touch, and whether they still apply."""

import re
import subprocess
from pathlib import Path

import pytest
from checking import CORE, GPT, check_found, check_noop, found_in, write_files
from command import unpatch
from repository import Repository

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.stacks.sources import source_at
from mcore_unpatch.survey.patch_files import applied_before, brought, findings_in

FILE = "megatron/core/models/gpt/gpt_model.py"
HEAD = "diff --git a/{0} b/{0}\nindex 1..2 100644\n--- a/{0}\n+++ b/{0}\n"
HUNK = "@@ -{line},2 +{line},3 @@ {section}\n     a = 1\n+    b = 2\n     c = 3\n"
SOURCE = '''\
def helper(x):
    return x


class GPTModel:
    """A model."""

    layers = 2

    def __init__(self, config):
        self.config = config

    def forward(self, ids):
        one = helper(ids)
        two = one
        three = two
        return three


class Other:
    def run(self):
        return 1
'''


def patch(*hunks: tuple[int, str], file: str = FILE) -> str:
    return HEAD.format(file) + "".join(HUNK.format(line=line, section=section) for line, section in hunks)


class TestOneFinding:
    def test_comments_alone_are_told_as_such(self) -> None:
        text = HEAD.format(FILE) + "@@ -1,1 +1,4 @@\n def old():\n+\n+    # a remark\n+    # x = 1\n"
        (finding,) = found_in({"a.patch": text})
        assert finding.message == "changes comments alone of Megatron's source in 1 file"
        assert finding.evidence.startswith("It changes comments alone of Megatron's source; ")
        (finding,) = found_in({"a.patch": text.replace("# x = 1", "x = 1")})
        assert finding.message == "changes Megatron's source in 1 file"

    def test_a_method_whose_class_is_out_of_sight(self) -> None:
        assert check_found({"a.patch": patch((10, "    def _postprocess("))}).touches == (f"{GPT}._postprocess",)

    @pytest.mark.parametrize("prefix", ["third_party/Megatron-LM/", "a b/"[:0]])
    def test_below_a_vendored_folder(self, prefix: str) -> None:
        text = patch((10, "def divide(a, b):"), file=f"{prefix}megatron/core/utils.py")
        assert check_found({"a.patch": text}).touches == (f"{CORE}.utils.divide",)

    def test_windows_line_ends_and_other_bytes(self) -> None:
        text = patch((10, "def divide(a, b):"), file="megatron/core/utils.py")
        for data in (text.replace("\n", "\r\n").encode(), b"\xff\xfe\n" + text.encode()):
            (finding,) = findings_in("a.patch", data)
            assert finding.touches == (f"{CORE}.utils.divide",)

    def test_odd_names(self) -> None:
        hunk = HUNK.format(line=1, section="")
        for head, module in (
            ('diff --git "a/megatron/core/f\\303\\251.py" "b/megatron/core/f\\303\\251.py"\nold mode 100644\n', "fé"),
            ('--- "a/Megatron LM/megatron/core/a\\tb.py"\n+++ "b/Megatron LM/megatron/core/a\\tb.py"\n' + hunk, "a\tb"),
            ("diff --git a/megatron/core/my utils.py b/megatron/core/my utils.py\nold mode 100644\n", "my utils"),
            ("--- a/megatron/core/my utils.py\t\n+++ b/megatron/core/my utils.py\t\n" + hunk, "my utils"),
            ("diff --git megatron/core/utils.py megatron/core/utils.py\nold mode 100644\nnew mode 100755\n", "utils"),
            ('diff --git "a/megatron/core/f\\303\\251.py" b/x.py\nrename from "megatron/core/f\\303\\251.py"\n', "fé"),
            ("--- a\\megatron\\core\\utils.py\n+++ b\\megatron\\core\\utils.py\n" + hunk, "utils"),
            ("# of Megatron\n--- a/core/utils.py\n+++ b/core/utils.py\n" + hunk, "utils"),
            ("--- a/megatron/core/utils.py\n+++ b/megatron/core/utils.py\n" + hunk, "utils"),
        ):
            for data in (head.encode(), head.encode("utf-16")):
                (finding,) = findings_in("a.patch", data)
                assert finding.touches[0] == f"{CORE}.{module}", head
        check_noop({"a.patch": "--- a/core/utils.py\n+++ b/core/utils.py\n" + hunk})  # of whom is not known

    @pytest.mark.parametrize(
        "text", ["", "+++", "--- a/setup.py\n+++ b/setup.py\n@@ -1 +1 @@\n-a\n+b\n", "megatron/core/utils.py\n"]
    )
    def test_what_changes_nothing_of_megatron(self, text: str) -> None:
        check_noop({"a.patch": text})

    @pytest.mark.parametrize("cut", range(0, 400, 13))
    def test_cut_anywhere(self, cut: int) -> None:
        text = patch((40, "def get_model_config(model):"), (90, "def divide(a, b):"), file="megatron/core/utils.py")
        assert len(findings_in("a.patch", text[:cut].encode())) <= 1


@pytest.fixture
def megatron(tmp_path: Path) -> Path:
    files = {FILE: SOURCE, "megatron/core/package_info.py": "MAJOR = 0\nMINOR = 30\nPATCH = 0\n"}
    write_files(tmp_path / "source", files)
    return tmp_path / "source"


def made_by_git(folder: Path, changed: str) -> bytes:
    """The diff from `SOURCE` to another text, as git writes it."""
    repository = folder / "work"
    (repository / FILE).parent.mkdir(parents=True)

    def git(*arguments: str) -> bytes:
        command = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True).stdout

    git("init", "-q")
    (repository / FILE).write_text(SOURCE)
    git("add", "-A")
    git("commit", "-qm", "one")
    (repository / FILE).write_text(changed)
    return git("diff")


CHANGED = SOURCE.replace("two = one\n", "two = one + 1\n").replace("return 1", "return 2")


class TestOnASource:
    def judged(self, diff: bytes, megatron: Path, *before: bytes) -> Finding:
        (finding,) = findings_in("a.patch", diff, source_at(megatron), before)
        return finding

    @pytest.mark.parametrize("kind", ["combined", "binary"])
    def test_what_git_cannot_apply(self, kind: str, tmp_path: Path, megatron: Path) -> None:
        diff = made_by_git(tmp_path, CHANGED)
        head, _, hunks = diff.partition(b"@@")
        if kind == "combined":  # as of a merge: both parents had the same
            lines = [line[:1].strip() + line if line[:1] in (b"+", b"-", b" ") else line for line in hunks.split(b"\n")]
            ranges = re.sub(rb"@@?( -[\d,]+) (\+[\d,]+ )@@", rb"@@@\1\1 \2@@@", b"@@" + b"\n".join(lines))
            told = head.replace(b"diff --git a/", b"diff --cc ") + ranges
        else:
            told = head.partition(b"--- ")[0] + f"Binary files a/{FILE} and b/{FILE} differ\n".encode()
        assert self.judged(told, megatron).breaks == ("does not apply to megatron-core 0.30.0 (1 of 1 files)",)

    def test_already_there(self, tmp_path: Path, megatron: Path) -> None:
        diff = made_by_git(tmp_path, CHANGED)
        (megatron / FILE).write_text(CHANGED)
        assert "has all of these changes" in self.judged(diff, megatron).upstream_has

    def test_behind_another_patch(self, tmp_path: Path, megatron: Path) -> None:
        first = made_by_git(tmp_path / "first", CHANGED)
        second = made_by_git(tmp_path / "second", CHANGED.replace("two = one + 1", "two = one + 2"))
        second = second.replace(b"-        two = one\n", b"-        two = one + 1\n").replace(
            b"-        return 1\n+        return 2\n", b"         return 2\n"
        )
        assert self.judged(b"\n".join(second.split(b"@@ -18")[:1]), megatron).breaks
        assert not self.judged(b"\n".join(second.split(b"@@ -18")[:1]), megatron, first).breaks

    def test_without_git_s_prefixes_and_below_a_folder(self, tmp_path: Path, megatron: Path) -> None:
        diff = made_by_git(tmp_path, CHANGED)
        plain = b"".join(diff.partition(b"--- ")[1:]).replace(b" a/", b" ").replace(b" b/", b" ")
        deeper = diff.replace(b"a/megatron", b"a/vendor/lm/megatron").replace(b"b/megatron", b"b/vendor/lm/megatron")
        for text in (plain, deeper):
            assert "1 file applies" in self.judged(text, megatron).message

    @pytest.mark.parametrize("to", ["megatron/core/new one.py", "megatron/core/é.py"])
    def test_a_file_that_moves(self, to: str, tmp_path: Path, megatron: Path) -> None:
        repository = Repository(tmp_path / "work")
        repository.commit({FILE: SOURCE})
        (repository.path / FILE).rename(repository.path / to)
        repository.commit({to: CHANGED})
        diff = repository.git("diff", "-M", "HEAD~").encode() + b"\n"
        finding = self.judged(diff, megatron)
        assert (finding.message.partition(": ")[2], finding.breaks) == ("1 file applies", ())

    def test_on_the_command_line(self, tmp_path: Path, megatron: Path) -> None:
        write_files(tmp_path / "project", {"a.patch": made_by_git(tmp_path, CHANGED).decode()})
        result = unpatch("scan", "--verbose", "--target-mcore", str(megatron), cwd=tmp_path / "project")
        assert "on megatron-core 0.30.0: 1 file applies" in " ".join(result.out.split())


def test_the_order_of_patch_files() -> None:
    files = ["p/0002-b.patch", "p/0001-a.patch", "p/x.patch", "q/0001-c.patch"]
    assert applied_before("p/0002-b.patch", files, None) == ["p/0001-a.patch"]
    assert applied_before("p/x.patch", files, None) == []
    assert applied_before("p/0001-a.patch", files, b"x.patch -p1\n0001-a.patch\n") == ["p/x.patch"]


BARE = HEAD.format("core/utils.py") + "@@ -1,2 +1,3 @@\n a\n+    ours=0,\n+# theirs\n b\n"


@pytest.mark.parametrize(
    ("path", "text", "added"),
    [
        ("patches/megatron/a.patch", BARE, True),
        ("patches/a.patch", f"# For Megatron.\n{BARE}", True),
        ("patches/a.patch", BARE, False),
        ("patches/a.patch", BARE.replace("core/utils", "megatron/core/utils"), True),
        ("patches/a.patch", BARE.replace("core/utils", "ours/core/utils") + "\nmegatron\n", False),
        ("patches/megatron/a.patch", BARE.replace("+    ours", "-    ours").replace("+# theirs", " # theirs"), False),
    ],
)
def test_names_that_a_patch_file_adds(path: str, text: str, added: bool) -> None:
    assert brought([path], lambda _: text.encode()) == ({"megatron.core.utils": {"ours"}} if added else {})
