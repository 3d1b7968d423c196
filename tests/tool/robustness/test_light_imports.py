"""`scan` and `check` load what they need: no libcst, no torch, and no rich where nothing is drawn."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from checking import write_files

STYLES = ("json", "sarif", "github")
REPORT_MODULES = """
import json, runpy, sys
sys.argv = ["unpatch", *sys.argv[1:]]
try:
    runpy.run_module("mcore_unpatch", run_name="__main__")
except SystemExit:
    pass
names = {name for name in sys.modules if name.startswith("mcore_unpatch.") or "." not in name}
print(json.dumps(sorted(names)), file=sys.stderr)
"""


def loaded(folder: Path, *arguments: str) -> set[str]:
    """The top-level modules and the modules of ours that a command has loaded in the end, with its output in a pipe."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT_MODULES, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.parametrize("style", ["text", *(pytest.param(one, marks=pytest.mark.every_case) for one in STYLES)])
@pytest.mark.parametrize("command", ["scan", "check"])
def test_scan_and_check(command: str, style: str, tmp_path: Path) -> None:
    write_files(tmp_path, "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n")
    modules = loaded(tmp_path, command, "--output-format", style)
    assert "mcore_unpatch" in modules
    # Typer 0.29 loads pydantic on every call, which is a twentieth of a second: no reason for an upper bound.
    assert modules.isdisjoint({"libcst", "torch", "megatron", "numpy", "rich"})
    if command == "check":
        assert "mcore_unpatch.codemods.planner" not in modules  # the gate plans nothing


@pytest.mark.parametrize("command", [["--help"], ["rules"], ["explain", "MCU101"]])
def test_words(command: list[str], tmp_path: Path) -> None:
    assert loaded(tmp_path, *command).isdisjoint({"libcst", "torch", "megatron", "numpy", "rich"})
