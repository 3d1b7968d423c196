"""Bad input: a clear message, never a traceback, the other files analysed all the same, and the exit code says it."""

import os
import stat
import sys
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, FINDINGS, Result, unpatch, unpatch_forked, unpatch_process, without_privileges

pytestmark = pytest.mark.slow

PATCH = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n"


# What a file may hold, and what is then said of it.
BROKEN: dict[str, tuple[bytes, str]] = {
    "syntax error": (PATCH.encode() + b"def broken(:\n", "syntax error on line 3"),
    "syntax error without a patch": (b"import megatron.core\ndef broken(:\n", "syntax error on line 2"),
    "wrong indentation": (PATCH.encode() + b"if True:\nx = 1\n", "syntax error on line 4"),
    "end of file in a string": (PATCH.encode() + b'"""\n', "syntax error on line 3"),
    "Python 2": (b"import megatron.core\nprint 'hello'\n", "Python 2 code?"),
    "Python 2 exceptions": (PATCH.encode() + b"try:\n    pass\nexcept ValueError, e:\n    pass\n", "Python 2 code?"),
    "latin-1 without a cookie": ("# caf\xe9\n".encode("latin-1") + PATCH.encode(), "not valid UTF-8"),
    "not UTF-8, without Megatron": (b"x = '\xff\xfe'\n", "not valid UTF-8"),
    "unknown encoding": (b"# -*- coding: klingon -*-\n" + PATCH.encode(), "unknown encoding"),
    "cookie against a byte order mark": (b"\xef\xbb\xbf# coding: latin-1\n" + PATCH.encode(), "encoding"),
    "NUL bytes": (PATCH.encode() + b"x = '\0'\n", "NUL bytes"),
    "NUL bytes, without Megatron": (b"\0" * 100, "NUL bytes"),
    "UTF-16": (PATCH.encode("utf-16"), "NUL bytes"),
    "parentheses": (PATCH.encode() + b"x = " + b"(" * 10_000 + b")" * 10_000 + b"\n", "nested"),
    "operators": (PATCH.encode() + b"x = " + b"-" * 200_000 + b"1\n", "nested"),
    "brackets without a patch": (b"import megatron\nx = " + b"[" * 10_000 + b"]" * 10_000 + b"\n", "nested"),
    "a long chain of attributes": (PATCH.encode() + b"x" + b".b" * 200_000 + b".forward = print\n", "nested"),
    "a huge number": (PATCH.encode() + b"x = " + b"9" * 10_000 + b"\n", ""),
    "50 MB": (PATCH.encode() + b"x = 1  # generated\n" * 2_800_000, "51 MB is over the limit"),
}


def check_one_error(result: Result, path: str, says: str) -> None:
    """The bad file is reported in `errors` and on stderr; the patch beside it is found."""
    assert result.code == ERROR
    report = result.json
    assert [f["path"] for f in report["findings"]] == ["good.py"]
    (error,) = report["errors"]
    assert error["path"] == path
    assert says in error["message"]
    assert f"error: {path}: {error['message']}\n" in result.err


@pytest.mark.parametrize("kind", [kind for kind in BROKEN if BROKEN[kind][1]])
def test_a_file_that_cannot_be_analysed(kind: str, tmp_path: Path) -> None:
    data, says = BROKEN[kind]
    write_files(tmp_path, {"bad.py": data, "good.py": PATCH})
    # Deep nesting and large files could kill the process itself.
    run = unpatch_process if says == "nested" or "MB" in says else unpatch
    check_one_error(run("check", "--output-format", "json", cwd=tmp_path), "bad.py", says)


def test_all_of_them_together_over_several_processes(tmp_path: Path) -> None:
    files = {f"bad{number}.py": data for number, (data, _) in enumerate(BROKEN.values())}
    write_files(tmp_path, {**files, "good.py": PATCH, "pad.py": b"x = 1\n" * 400_000})
    result = unpatch_process("scan", "--jobs", "2", "--output-format", "json", cwd=tmp_path)
    assert result.code == ERROR
    may_patch = {name for name, data in files.items() if b"GPTModel" in data}  # all that is parsed in a large tree
    assert {error["path"] for error in result.json["errors"]} >= may_patch - {"bad17.py"}
    assert "good.py" in {finding["path"] for finding in result.json["findings"]}


@pytest.mark.parametrize(
    "data",
    [
        b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + PATCH.encode(),
        b"\xef\xbb\xbf" + PATCH.encode(),
        b"# vim: set fileencoding=cp1252 :\n# \x80\n" + PATCH.encode(),
        "# Grüße, 世界\n".encode() + PATCH.encode(),
    ],
)
def test_encodings_that_are_declared_are_read(data: bytes, tmp_path: Path) -> None:
    write_files(tmp_path, {"good.py": data})
    result = unpatch("check", "--output-format", "json", cwd=tmp_path)
    assert (result.code, result.json["errors"]) == (FINDINGS, [])


def test_a_large_file_that_says_nothing_of_megatron(tmp_path: Path) -> None:
    write_files(tmp_path, {"data.py": b"x = 1  # generated\n" * 2_800_000, "good.py": PATCH})
    assert unpatch("check", cwd=tmp_path).code == FINDINGS


def test_in_a_large_tree_only_files_that_may_patch_megatron_are_checked_for_syntax(tmp_path: Path) -> None:
    write_files(tmp_path, {"broken.py": b"def broken(:\n", "good.py": PATCH})
    assert unpatch("check", cwd=tmp_path).code == ERROR
    write_files(tmp_path, {"data.py": b"x = 1  # generated\n" * 150_000})
    assert unpatch("check", cwd=tmp_path).code == FINDINGS
    write_files(tmp_path, {"broken.py": PATCH.encode() + b"def broken(:\n"})
    assert unpatch("check", cwd=tmp_path).code == ERROR


@pytest.mark.parametrize("data", [b"# caf\xe9\n", b"x = 1\0\n", b"# coding: no-such\nx = 1\n", b"\xff\xfex\0"])
@pytest.mark.parametrize("large", [False, True])
def test_what_is_no_text_is_told_whatever_it_says(data: bytes, large: bool, tmp_path: Path) -> None:
    """It may speak of Megatron in an encoding that nobody knows."""
    write_files(tmp_path, {"bad.py": data, "good.py": PATCH, "data.py": b"x = 1\n" * (450_000 if large else 1)})
    report = unpatch("scan", "--output-format", "json", cwd=tmp_path).json
    assert [error["path"] for error in report["errors"]] == ["bad.py"]


def test_a_large_patch_file(tmp_path: Path) -> None:
    header = b"--- a/megatron/core/utils.py\n+++ b/megatron/core/utils.py\n@@ -1 +1 @@\n"
    write_files(tmp_path, {"big.patch": header + b"+x\n" * 500_000})
    assert unpatch("check", cwd=tmp_path).code == FINDINGS


class TestPaths:
    def test_an_empty_folder(self, tmp_path: Path) -> None:
        result = unpatch_forked("check", cwd=tmp_path)
        assert (result.code, result.err) == (CLEAN, "")
        assert result.out == "No Python file and no patch file to read in .\n"

    def test_a_path_that_does_not_exist(self, tmp_path: Path) -> None:
        result = unpatch_forked("scan", "nowhere", cwd=tmp_path)
        assert (result.code, result.out, result.err) == (ERROR, "", "error: no such file or folder: nowhere\n")

    def test_one_of_several_that_does_not_exist(self, tmp_path: Path) -> None:
        write_files(tmp_path, {"good.py": PATCH})
        result = unpatch("check", "good.py", "nowhere", cwd=tmp_path)
        assert result.code == ERROR
        assert "nowhere" in result.err

    def test_a_file_instead_of_a_folder(self, tmp_path: Path) -> None:
        write_files(tmp_path, {"good.py": PATCH})
        report = unpatch("scan", "good.py", "--output-format", "json", cwd=tmp_path).json
        assert (report["files_scanned"], [f["path"] for f in report["findings"]]) == (1, ["good.py"])

    def test_a_file_without_a_suffix(self, tmp_path: Path) -> None:
        write_files(tmp_path, {"train": b"#!/usr/bin/env python3\n" + PATCH.encode()})
        assert unpatch("check", "train", cwd=tmp_path).code == FINDINGS

    def test_a_binary_file(self, tmp_path: Path) -> None:
        write_files(tmp_path, {"image.png": b"\x89PNG\r\n\x1a\n\0\0"})
        assert unpatch("check", cwd=tmp_path).code == CLEAN
        result = unpatch("check", "image.png", cwd=tmp_path)
        assert result.code == ERROR
        assert "image.png: contains NUL bytes" in result.err

    def test_an_empty_file(self, tmp_path: Path) -> None:
        write_files(tmp_path, {"empty.py": b""})
        assert unpatch("check", cwd=tmp_path).code == CLEAN

    def test_an_unreadable_file(self, tmp_path: Path) -> None:
        write_files(tmp_path, {"bad.py": PATCH, "good.py": PATCH})
        (tmp_path / "bad.py").chmod(0)
        result = unpatch_process("check", "--output-format", "json", cwd=tmp_path, prefix=without_privileges())
        check_one_error(result, "bad.py", "cannot be read: Permission denied")

    def test_a_folder_called_like_a_file(self, tmp_path: Path) -> None:
        write_files(tmp_path, {"pkg.py/good.py": PATCH, "fix.patch/x.py": "x = 1\n"})
        report = unpatch("check", "--output-format", "json", cwd=tmp_path).json
        assert [f["path"] for f in report["findings"]] == ["pkg.py/good.py"]
        assert report["errors"] == []

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
    def test_a_named_pipe_does_not_hang(self, tmp_path: Path) -> None:
        write_files(tmp_path, {"good.py": PATCH})
        os.mkfifo(tmp_path / "pipe.py")
        assert stat.S_ISFIFO((tmp_path / "pipe.py").stat().st_mode)
        result = unpatch_forked("check", cwd=tmp_path)
        assert "good.py" in result.out


def test_a_deep_folder(tmp_path: Path) -> None:
    write_files(tmp_path, {"/".join(["d"] * 60) + "/good.py": PATCH})
    assert unpatch("check", cwd=tmp_path).code == FINDINGS


def test_deep_code_that_python_can_still_parse(tmp_path: Path) -> None:
    depth = 80
    deep = [
        "from megatron.core.models.gpt import GPTModel",
        *("    " * level + "if True:" for level in range(depth)),
        "    " * depth + "GPTModel.forward = print",
        "x = a" + ".b" * 300,
        "y = f" + "()" * 500,
        "z = " + " + ".join(["1"] * 3000),
    ]
    write_files(tmp_path, {"deep.py": "\n".join(deep).encode(), "good.py": PATCH})
    result = unpatch_forked("check", cwd=tmp_path)
    assert "good.py" in result.out
    assert result.code in {FINDINGS, ERROR}


def test_a_name_that_leads_to_itself(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "a.py": "from megatron.core.models.gpt import GPTModel\nx = y\ny = x\nx.forward = print\n",
            "b.py": "import megatron\nfrom b import *\nfrom b import Z\nZ.forward = print\n",
            "c.py": "import megatron\n"
            "class A(A): ...\n"
            "class B(C): ...\n"
            "class C(B): ...\n"
            "A.forward = B.forward = print\n",
            "d.py": "import megatron\ndef f(m=None): return f(m)\nf().forward = print\n",
            "good.py": PATCH,
        },
    )
    result = unpatch_forked("check", "--output-format", "json", cwd=tmp_path)
    assert [f["path"] for f in result.json["findings"]] == ["good.py"]
    assert result.code == FINDINGS


def test_no_home_no_git_no_environment(tmp_path: Path) -> None:
    write_files(tmp_path, {"good.py": PATCH})
    import subprocess

    done = subprocess.run(
        [sys.executable, "-m", "mcore_unpatch", "check"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == FINDINGS
    assert "Traceback" not in done.stderr
