"""What the commands say to what users type: the way out, not only what is wrong."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from checking import write_files
from command import CLEAN, ERROR, FINDINGS, unpatch

from mcore_unpatch.upgrade import report as upgrade_report


def test_the_bare_command_prints_its_help(tmp_path: Path) -> None:
    bare = unpatch(cwd=tmp_path)
    assert (bare.code, bare.err) == (CLEAN, "")
    assert bare.out == unpatch("--help", cwd=tmp_path).out
    assert unpatch("nonsense", cwd=tmp_path).code == ERROR


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["upgrade", "0.19"], "(a release is named with an option: `unpatch upgrade --to 0.19`)"),
        (["upgrade", "v0.19.2"], "`unpatch upgrade --to 0.19.2`"),
        (
            ["scan", "https://github.com/a/b"],
            "folder: https://github.com/a/b (a repository is read from disk: `git clone`",
        ),
        (["scan", "git@github.com:volcengine/verl.git"], "`git clone` it, and name the folder"),
        (["explain", "MCU999"], "unknown rule 'MCU999'; the nearest are MCU90"),
        (["explain", "gpt-forwart"], "; the nearest is gpt-forward;"),
        (["explain", "mcu1"], "it is a family, which `unpatch rules MCU1` lists"),
        (["rules", "XYZ"], "unknown rule or family 'XYZ'"),
    ],
)
def test_the_way_out_is_named(arguments: list[str], said: str, tmp_path: Path) -> None:
    result = unpatch(*arguments, cwd=tmp_path)
    assert result.code == ERROR
    assert said in result.err


@pytest.mark.parametrize("command", ["scan", "check"])
def test_a_folder_without_a_python_file_is_not_called_clean(command: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    assert unpatch(command, cwd=tmp_path).out == "No Python file and no patch file to read in .\n"


def test_pins_are_held_where_there_is_no_python_file(tmp_path: Path) -> None:
    (tmp_path / "unpatch.lock").write_text('version = 1\n[[pin]]\nname = "megatron.core.utils"\nrelease = "0.19.2"\n')
    result = unpatch("check", "--target-mcore", "0.19", cwd=tmp_path)
    assert (result.code, "MCU801" in result.out) == (FINDINGS, True)


def test_the_rules_of_a_family(tmp_path: Path) -> None:
    lines = unpatch("rules", "mcu1", cwd=tmp_path).out.splitlines()
    assert lines[0].startswith("MCU1  ")
    assert all(line.startswith(("  MCU1", " " * 10)) and len(line) <= 80 for line in lines[1:-1])
    assert len(lines) > 3


@pytest.mark.parametrize("name", ["MCU701", "verl"])
def test_an_explanation_fits_the_terminal(name: str, tmp_path: Path) -> None:
    said = unpatch("explain", name, cwd=tmp_path).out
    code = re.findall(r"^```.*?^```", said, re.MULTILINE | re.DOTALL)
    prose = [line for line in said.splitlines() if not any(line in block for block in code) and line[:1] != "|"]
    assert [line for line in prose if len(line) > 80 and "`" not in line and "/" not in line] == []
    assert code


PATCH = "from megatron.core import utils\nutils.get_model_config = print"


def test_nothing_to_pin_writes_nothing(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "x = 1\n", "pyproject.toml": "[project]\nname = 'a'\n"})
    done = unpatch("pin", "--target-mcore", "0.19", cwd=tmp_path)
    assert (done.code, done.out) == (CLEAN, "")
    assert done.err.startswith("note: There is nothing to pin")
    assert not (tmp_path / "unpatch.lock").exists()


def test_a_diff_with_check_prints_it_and_fails(tmp_path: Path) -> None:
    write_files(tmp_path, "from verl.models.mcore.mtp_patch import patch_postprocess\n")
    done = unpatch("migrate", "--diff", "--check", cwd=tmp_path)
    assert done.code == FINDINGS
    assert done.out.startswith("--- ")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("0.16.1", "0.19.2", "upgrade"), ("0.19.2", "0.16.1", "go back"), ("fork", "0.16.1", "upgrade")],
)
def test_a_step_back_is_no_upgrade(old: str, new: str, said: str) -> None:
    step = SimpleNamespace(old=SimpleNamespace(label=old), new=SimpleNamespace(label=new))
    assert upgrade_report._move(cast(Any, step)) == said
