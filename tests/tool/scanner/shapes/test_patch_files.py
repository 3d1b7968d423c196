"""`.patch` and `.diff` files: each function of Megatron's that a hunk changes is a patch, and may apply or not."""

import subprocess
from pathlib import Path

import pytest
from checking import CORE, GPT, check_found, check_noop, found_in, write_files
from command import unpatch

from mcore_unpatch.findings import Finding
from mcore_unpatch.scan import Options, scan
from mcore_unpatch.scanner.shapes.patch_files import Source

FILE = "megatron/core/models/gpt/gpt_model.py"
DIFF = f"""\
diff --git a/{FILE} b/{FILE}
index 1..2 100644
--- a/{FILE}
+++ b/{FILE}
@@ -1,1 +1,1 @@
-old
+new
diff --git a/megatron/core/transformer/mlp.py b/megatron/core/transformer/mlp.py
--- a/megatron/core/transformer/mlp.py
+++ b/megatron/core/transformer/mlp.py
@@ -1,1 +1,1 @@
-old
+new
"""
SOURCE = '''\
import os


def helper(x):
    return x


class GPTModel(LanguageModule):
    """A model."""

    layers = 2

    def __init__(self, config):
        self.config = config

    def forward(self, ids):
        def inner(y):
            return y

        one = inner(ids)
        two = helper(one)
        three = two
        four = three
        return four


class Other:
    def run(self):
        return 1
'''


def hunks(*parts: str, file: str = FILE) -> str:
    """A patch file of one file."""
    return f"diff --git a/{file} b/{file}\n--- a/{file}\n+++ b/{file}\n" + "".join(parts)


def targets(text: str | bytes, name: str = "a.patch") -> list[str]:
    return [finding.target.removeprefix(f"{CORE}.models.gpt.") for finding in found_in({name: text})]


class TestFiles:
    @pytest.mark.parametrize("name", ["docker/megatron.patch", "fixes/mcore.diff"])
    def test_each_file_it_touches(self, name: str) -> None:
        one, two = found_in({name: DIFF})
        assert (one.target, one.line, one.shape, one.rule) == (
            f"{CORE}.models.gpt.gpt_model",
            5,
            "patch-file",
            "MCU608",
        )
        assert (two.target, two.line, two.verdict) == (f"{CORE}.transformer.mlp", 11, "keep")

    def test_without_git_headers(self) -> None:
        text = "--- megatron/core/utils.py\t2026-01-01\n+++ megatron/core/utils.py\t2026-01-02\n@@ -1 +1 @@\n-a\n+b\n"
        check_found({"a.patch": text}, target=f"{CORE}.utils")

    def test_below_a_vendored_folder(self) -> None:
        text = DIFF.replace("megatron/core", "third_party/Megatron-LM/megatron/core")
        assert targets(text)[0] == "gpt_model"

    def test_with_windows_line_ends(self) -> None:
        one, _ = found_in({"a.patch": DIFF.replace("\n", "\r\n").encode()})
        assert "\r" not in one.source

    def test_mtp_alone(self) -> None:
        text = hunks("@@ -1 +1 @@\n-a\n+b\n", file="megatron/core/transformer/multi_token_prediction.py")
        check_found({"a.patch": text}, seam="mtp", rule="MCU204")

    def test_a_file_of_megatron_training(self) -> None:
        text = hunks("@@ -9,2 +9,3 @@ def train(\n     a\n+    b\n     c\n", file="megatron/training/training.py")
        check_found({"a.patch": text}, target="megatron.training.training.train")

    def test_a_file_without_hunks(self) -> None:
        check_found({"a.patch": f"diff --git a/{FILE} b/{FILE}\nold mode 100644\nnew mode 100755\n"}, line=1)

    def test_what_is_no_python(self) -> None:
        check_found({"a.patch": hunks("@@ -1 +1 @@\n-a\n+b\n", file="megatron/core/datasets/Makefile")})

    @pytest.mark.parametrize("folder", ["verl/models", "megatron/core_extras", "docs/megatron/corefiles"])
    def test_other_files(self, folder: str) -> None:
        check_noop({"a.patch": DIFF.replace("megatron/core", folder)})

    def test_binary_bytes(self) -> None:
        assert found_in({"a.patch": b"\x00\xff\xfe garbage\n" * 10}) == []

    def test_text_that_only_mentions_it(self) -> None:
        check_noop({"a.diff": "@@ -1 +1 @@\n-import megatron/core/utils.py\n+see megatron/core/utils.py\n"})

    @pytest.mark.parametrize(
        "line", ["@@ -1,9 +1,9 @@ class A:\n", "@@ -a +b @@\n", "@@\n", "@@ -1,2 +1,2 @@\n-- a/x\n"]
    )
    def test_what_is_cut_short(self, line: str) -> None:
        assert len(found_in({"a.patch": hunks(line)})) == 1


# What a hunk is of -> its text, and what it changes.
HUNKS = {
    "a method behind the header of its class": (
        """\
@@ -9,3 +9,3 @@ class GPTModel(LanguageModule):
     def forward(self, ids):
-        a
+        b
""",
        ["gpt_model.GPTModel.forward"],
    ),
    "a class whose method is out of sight": (
        """\
@@ -90,2 +90,3 @@ class GPTModel(LanguageModule):
         a
+        b
         c
""",
        ["gpt_model.GPTModel"],
    ),
    "a function": (
        """\
@@ -9,2 +9,3 @@ def helper(x):
     a
+    b
     c
""",
        ["gpt_model.helper"],
    ),
    "a method in the header": (
        """\
@@ -9,2 +9,3 @@ def forward(self, ids):
         a
+        b
         c
""",
        ["gpt_model.GPTModel.forward"],
    ),
    "two methods": (
        """\
@@ -9,4 +9,4 @@ class GPTModel(LanguageModule):
     def __init__(self):
-        a
+        b
     def forward(self):
-        a
+        b
""",
        ["gpt_model.GPTModel.__init__", "gpt_model.GPTModel.forward"],
    ),
    "a function within a method": (
        """\
@@ -9,3 +9,3 @@ class GPTModel(LanguageModule):
     def forward(self):
         def inner(y):
-            a
+            b
""",
        ["gpt_model.GPTModel.forward"],
    ),
    "behind a method": (
        """\
@@ -9,3 +9,4 @@ class GPTModel(LanguageModule):
     def forward(self):
         a

+    layers = 2
""",
        ["gpt_model.GPTModel"],
    ),
    "a method that is added": (
        """\
@@ -9,2 +9,5 @@ class GPTModel(LanguageModule):
     def forward(self):
         a
+
+    def of_our_own(self):
+        b
""",
        ["gpt_model.GPTModel.of_our_own"],
    ),
    "below what was added": (
        """\
@@ -9,3 +9,5 @@ class GPTModel(LanguageModule):
     def forward(self):
         a
+    def of_our_own(self):
+        b
-        c
""",
        ["gpt_model.GPTModel.forward", "gpt_model.GPTModel.of_our_own"],
    ),
    "a class that is added": (
        """\
@@ -9,2 +9,6 @@ def helper(x):
     a
+class Own:
+    def run(self):
+        b
+
 def other(x):
""",
        ["gpt_model.Own"],
    ),
    "a signature over several lines": (
        """\
@@ -9,4 +9,5 @@ class GPTModel(LanguageModule):
     def forward(
         self,
+        more=None,
     ):
         a
""",
        ["gpt_model.GPTModel.forward"],
    ),
    "imports": (
        """\
@@ -1,2 +1,3 @@
 import os
+import sys
 import re
""",
        ["gpt_model"],
    ),
    "imports above a class": (
        """\
@@ -1,3 +1,4 @@ class Before:
 import os
+import sys

 class After:
""",
        ["gpt_model"],
    ),
}


class TestFunctions:
    """What a hunk changes, told by its header and by the lines around."""

    @pytest.mark.parametrize(("text", "expected"), HUNKS.values(), ids=HUNKS)
    def test_changed(self, text: str, expected: list[str]) -> None:
        assert targets(hunks(text)) == expected

    def test_hunks_of_one_function_are_one_patch(self) -> None:
        one = "@@ -{0},2 +{0},3 @@ def helper(x):\n     a\n+    b\n     c\n"
        check_found({"a.patch": hunks(one.format(9), one.format(40))}, line=4, related={"touches": [8]})

    def test_the_promise_of_a_function_is_not_made_for_a_hunk(self) -> None:
        """What a hunk does is not read: a way that Megatron has for the function may not be one for it."""
        text = hunks("@@ -9,3 +9,4 @@ class GPTModel:\n     def build_schedule_plan(self):\n         a\n+        b\n")
        finding = check_found({"a.patch": text}, verdict="keep", seam="schedule")
        assert "0.18" in finding.evidence

    def test_a_function_that_is_gone(self) -> None:
        text = hunks("@@ -9,2 +9,3 @@ def none\n", "@@ -9,1 +9,2 @@ def get_cpu_offload_context(x):\n a\n+b\n")
        assert all(one.verdict == "keep" for one in found_in({"a.patch": text}))


@pytest.fixture
def megatron(tmp_path: Path) -> Path:
    folder = tmp_path / "Megatron-LM"
    version = "MAJOR = 0\nMINOR = 19\nPATCH = 2\n"
    write_files(folder, {FILE: SOURCE, "megatron/core/package_info.py": version})
    return folder


def made_by_git(folder: Path, changed: str) -> str:
    """The patch that git writes for a change of the file."""

    def git(*arguments: str) -> str:
        options = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        return subprocess.run(
            ["git", *options, *arguments], cwd=folder, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "a")
    (folder / FILE).write_text(changed)
    text = git("diff", "-U1")
    git("checkout", "-q", ".")
    return text


def judged(folder: Path, megatron: Path, text: str) -> list[Finding]:
    """The findings of a repository with one patch file, where a Megatron source is given."""
    write_files(folder, {"docker/a.patch": text})
    return scan([folder], Options(jobs=1, source=Source(megatron, "0.19.2"))).findings


class TestApplied:
    """With a Megatron source: what the hunks change to the line, and whether they still apply."""

    CHANGED = SOURCE.replace("three = two", "three = two + 1").replace("return 1", "return 2")

    def test_methods_are_told_by_the_source(self, tmp_path: Path, megatron: Path) -> None:
        text = made_by_git(megatron, self.CHANGED)
        assert "def forward" not in text
        one, two = judged(tmp_path / "own", megatron, text)
        assert (one.target, two.target) == (f"{GPT}.forward", f"{CORE}.models.gpt.gpt_model.Other.run")
        assert "applies to megatron-core 0.19.2" in one.message
        assert one.verdict == two.verdict == "keep"

    def test_at_another_line(self, tmp_path: Path, megatron: Path) -> None:
        text = made_by_git(megatron, self.CHANGED)
        (megatron / FILE).write_text("# more\n" * 50 + SOURCE)
        one, _ = judged(tmp_path / "own", megatron, text)
        assert one.target == f"{GPT}.forward"
        assert "applies to megatron-core 0.19.2" in one.message

    def test_no_longer(self, tmp_path: Path, megatron: Path) -> None:
        text = made_by_git(megatron, self.CHANGED)
        (megatron / FILE).write_text(SOURCE.replace("two = helper(one)", "two = other(one)"))
        one, two = judged(tmp_path / "own", megatron, text)
        assert "no longer applies to megatron-core 0.19.2" in one.message
        assert one.breaks
        assert "no longer" not in two.message

    def test_already_there(self, tmp_path: Path, megatron: Path) -> None:
        text = made_by_git(megatron, self.CHANGED)
        (megatron / FILE).write_text(SOURCE.replace("three = two", "three = two + 1"))
        one, two = judged(tmp_path / "own", megatron, text)
        assert (one.verdict, two.verdict) == ("delete", "keep")
        assert "0.19.2 has this change" in one.evidence

    def test_a_file_that_is_gone(self, tmp_path: Path, megatron: Path) -> None:
        text = made_by_git(megatron, self.CHANGED)
        (megatron / FILE).unlink()
        assert all("no longer applies" in one.message for one in judged(tmp_path / "own", megatron, text))

    def test_a_file_that_is_added(self, tmp_path: Path, megatron: Path) -> None:
        new = "diff --git a/megatron/core/own.py b/megatron/core/own.py\nnew file mode 100644\n--- /dev/null\n"
        new += "+++ b/megatron/core/own.py\n@@ -0,0 +1,2 @@\n+def own():\n+    return 1\n"
        (one,) = judged(tmp_path / "own", megatron, new)
        assert (one.target, "applies to" in one.message) == (f"{CORE}.own", True)

    def test_the_judgement_is_git_s(self, tmp_path: Path, megatron: Path) -> None:
        """What we say of a patch is what `git apply --check` does with it."""
        text = made_by_git(megatron, self.CHANGED)
        sources = (SOURCE, "# more\n" * 9 + SOURCE, SOURCE.replace("four = three", "five = three"), self.CHANGED)
        for source in sources:
            (megatron / FILE).write_text(source)
            checked = subprocess.run(["git", "apply", "--check", "-"], cwd=megatron, input=text, text=True, check=False)
            ours = all("; applies to" in one.message for one in judged(tmp_path / "own", megatron, text))
            assert ours is (checked.returncode == 0)

    def test_on_the_command_line(self, tmp_path: Path, megatron: Path) -> None:
        text = made_by_git(megatron, self.CHANGED)
        write_files(tmp_path / "own", {"a.patch": text, "requirements.txt": "megatron-core==0.19.2\n"})
        own = tmp_path / "own"
        assert "2 apply to megatron-core 0.19.2" in " ".join(unpatch("scan", "--mcore", megatron, cwd=own).out.split())
        (megatron / FILE).write_text(SOURCE.replace("two = helper(one)", "two = other(one)"))
        checked = unpatch("check", "--mcore", megatron, cwd=own)
        assert checked.code == 1
        assert "no longer applies to megatron-core 0.19.2" in " ".join(checked.out.split())
        upgraded = unpatch("upgrade", "--from", "0.18", "--mcore", megatron, "--output-format", "json", cwd=own)
        urgencies = {one["target"].rpartition(".")[2]: one["urgency"] for one in upgraded.json["patches"]}
        assert urgencies == {"GPTModel": "breaks", "run": "harmless"}
        assert unpatch("scan", "--mcore", own, cwd=own).code == 2
