"""`make demo` tells the story of the Start page, step by step."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DEMO = ROOT / ".ci" / "demo"


@pytest.mark.skipif(not DEMO.exists(), reason="the wheel has no demo")
def test_the_demo_runs_the_commands_of_the_start_page() -> None:
    commands = re.findall(r"^(unpatch \w+)", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE)
    shown = re.findall(r"^(unpatch \w+)", DEMO.read_text(), re.MULTILINE)
    # What needs a person's reason, or torch and Megatron, is left to the page.
    told = dict.fromkeys(one for one in commands if one not in ("unpatch pin", "unpatch verify"))
    assert list(dict.fromkeys(shown)) == list(told)


@pytest.mark.slow
@pytest.mark.skipif(not DEMO.exists(), reason="the wheel has no demo")
def test_the_demo_ends_with_the_gate() -> None:
    done = subprocess.run([DEMO, Path(sys.executable).parent], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for said in (
        "Will raise (2)",
        "+    from mcore_unpatch.compat.nemo_rl import (",
        "tiny_rl/new_patch.py",
        "exit code 1.",
    ):
        assert said in done.stdout
