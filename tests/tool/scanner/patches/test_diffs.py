"""Diffs as git, diff and quilt write them, and such that nobody would write."""

import pytest
from checking import CORE, check_found, check_noop, found_in

from mcore_unpatch.scanner.sources.hunks import read

FILE = "megatron/core/utils.py"
BODY = "@@ -9,2 +9,3 @@ def divide(a, b):\n     a\n+    b\n     c\n"
HEAD = f"--- a/{FILE}\n+++ b/{FILE}\n"
TARGET = f"{CORE}.utils.divide"

# Ways to write the same change.
FORMATS = {
    "git": f"diff --git a/{FILE} b/{FILE}\nindex 1234567..89abcde 100644\n{HEAD}{BODY}",
    "diff": f"--- {FILE}\t2026-01-01 00:00:00 +0000\n+++ {FILE}\t2026-01-02 00:00:00 +0000\n{BODY}",
    "quilt": f"Index: megatron-lm/{FILE}\n{'=' * 60}\n--- megatron-lm.orig/{FILE}\n+++ megatron-lm/{FILE}\n{BODY}",
    "a mail": (
        f"From 0123456789 Mon Sep 17 00:00:00 2001\nFrom: A <a@example.org>\nSubject: [PATCH] Divide\n\n"
        f"Why {FILE} changes:\n--- it was wrong\n---\n {FILE} | 1 +\n 1 file changed, 1 insertion(+)\n\n"
        f"diff --git a/{FILE} b/{FILE}\n{HEAD}{BODY}-- \n2.43.0\n"
    ),
    "no prefix": f"diff --git {FILE} {FILE}\n--- {FILE}\n+++ {FILE}\n{BODY}",
    "an installed package": "".join(f"{mark} site-packages/{FILE}\n" for mark in ("---", "+++")) + BODY,
    "windows": (HEAD + BODY).replace("\n", "\r\n"),
    "stripped": (HEAD + BODY).replace("     c\n", "\n"),
    "no line end": HEAD + BODY + "\\ No newline at end of file\n",
}


@pytest.mark.parametrize("text", FORMATS.values(), ids=FORMATS)
def test_every_format_says_the_same(text: str) -> None:
    check_found({"a.patch": text.encode()}, target=TARGET)


def test_a_line_that_is_taken_away_is_no_header() -> None:
    text = f"{HEAD}@@ -9,3 +9,2 @@ def divide(a, b):\n     a\n--- a/megatron/core/other.py\n     c\n"
    check_found({"a.patch": text}, target=f"{CORE}.utils")


def test_no_context_is_no_added_file() -> None:
    finding = check_found({"a.patch": f"{HEAD}@@ -9,0 +10,1 @@ def divide(a, b):\n+    b\n"}, target=TARGET)
    assert "changes" in finding.message


class TestWholeFiles:
    def test_added(self) -> None:
        text = (
            f"diff --git a/{FILE} b/{FILE}\nnew file mode 100644\n--- /dev/null\n+++ b/{FILE}\n@@ -0,0 +1 @@\n+x = 1\n"
        )
        finding = check_found({"a.patch": text}, target=f"{CORE}.utils", verdict="keep")
        assert finding.message == f"adds the file {FILE}"

    def test_taken_away(self) -> None:
        text = (
            f"diff --git a/{FILE} b/{FILE}\ndeleted file mode 100644\n--- a/{FILE}\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        )
        finding = check_found({"a.patch": text}, target=f"{CORE}.utils", verdict="keep")
        assert finding.message == f"removes the file {FILE}"

    def test_moved(self) -> None:
        text = f"diff --git a/{FILE} b/tools/utils.py\nrename from {FILE}\nrename to tools/utils.py\n"
        finding = check_found({"a.patch": text}, target=f"{CORE}.utils", verdict="keep")
        assert finding.message == f"moves {FILE} to tools/utils.py"

    @pytest.mark.parametrize("line", ["Binary files a/x.so and b/x.so differ", "GIT binary patch\nliteral 3\nKcmZQz"])
    def test_binary(self, line: str) -> None:
        text = f"diff --git a/megatron/core/x.so b/megatron/core/x.so\nindex 1234567..89abcde 100644\n{line}\n"
        assert "binary" in check_found({"a.patch": text}).message


def test_a_combined_diff() -> None:
    text = f"diff --cc {FILE}\nindex 1234567,89abcde..2345678\n{HEAD}@@@ -9,2 -9,2 +9,3 @@@ def divide(a, b):\n"
    text += "      a\n++    b\n      c\n"
    finding = check_found({"a.patch": text}, target=TARGET, verdict="keep")
    assert "combined" in finding.message


def test_files_of_others_are_left_alone() -> None:
    check_noop({"a.patch": FORMATS["git"].replace("megatron/core", "vllm/core")})


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"@@ -1 +1 @@\n+a\n", b"\\ No newline\n", b"--- \n+++ \n", b"diff --git a b\n"]
)
def test_nothing_is_read_from_nothing(data: bytes) -> None:
    assert all(not file.hunks for file in read(data))


@pytest.mark.parametrize("cut", range(0, len(FORMATS["a mail"]), 7))
def test_cut_anywhere(cut: int) -> None:
    found_in({"a.patch": FORMATS["a mail"][:cut]})
