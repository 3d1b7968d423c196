"""`check`: 0 clean, 1 findings, 2 usage error, unreadable configuration or a file that could not be analysed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, FINDINGS, unpatch, unpatch_forked

PATCH = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n"


def test_clean(tmp_path: Path) -> None:
    write_files(tmp_path, "x = 1\n")
    result = unpatch_forked("check", cwd=tmp_path)
    assert (result.code, result.err) == (CLEAN, "")
    assert result.out == "No patch of Megatron Core found; 1 file scanned.\n"


def test_findings(tmp_path: Path) -> None:
    write_files(tmp_path, PATCH)
    result = unpatch_forked("check", cwd=tmp_path)
    assert (result.code, result.err) == (FINDINGS, "")
    assert "GPTModel.forward" in result.out


def test_scan_is_an_inventory_and_no_gate(tmp_path: Path) -> None:
    write_files(tmp_path, PATCH)
    assert unpatch("scan", cwd=tmp_path).code == CLEAN


@pytest.mark.parametrize("command", ["scan", "check"])
def test_a_file_that_cannot_be_analysed_outweighs_findings(command: str, tmp_path: Path) -> None:
    write_files(tmp_path, {"patches.py": PATCH, "broken.py": b"import megatron.core\nmegatron.core.x = (\n"})
    result = unpatch_forked(command, cwd=tmp_path)
    assert result.code == ERROR
    assert "GPTModel.forward" in result.out
    assert result.err.startswith("error: broken.py: syntax error on line 2")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "--nonsense"], "--nonsense"),
        (["check", "--output-format", "xml"], "xml"),
        (["check", "--jobs", "0"], "--jobs"),
        (["check", "--select", "MCU777"], "unknown rule or family 'MCU777'"),
        (["check", "--ignore", "E501"], "unknown rule or family 'E501'"),
        (["check", "--target-mcore", "new"], "'new' is no Megatron: pass a release (0.12.0 to "),
        (["check", "--target-mcore", " "], "--target-mcore is empty"),
        (["check", "no/such/folder"], "no such file or folder: no/such/folder"),
        (["check", "--baseline", "none.json"], "no baseline at none.json"),
        (["explain", "MCU777"], "unknown rule 'MCU777'"),
        (["nonsense"], "nonsense"),
    ],
)
def test_usage_errors(arguments: list[str], says: str, tmp_path: Path) -> None:
    result = unpatch(*arguments, cwd=tmp_path)
    assert (result.code, result.out) == (ERROR, "")
    assert says in result.err


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    code = f"import os, runpy; os.rmdir({str(tmp_path)!r}); runpy.run_module('mcore_unpatch', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        ERROR,
        "error: the current folder does not exist any more: go to another one\n",
    )


def test_the_console_script(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("unpatch")
    assert shutil.which(script)


def test_version_and_help(tmp_path: Path) -> None:
    assert unpatch("--version", cwd=tmp_path).out.startswith("unpatch ")
    for arguments in (["--help"], ["scan", "--help"], ["check", "--help"], ["explain", "-h"]):
        result = unpatch(*arguments, cwd=tmp_path)
        assert result.code == CLEAN
        assert "Usage" in result.out
