"""`make demo` goes through the first page, step by step."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DEMO = ROOT / ".ci" / "demo"


@pytest.mark.skipif(not DEMO.exists(), reason="the wheel has no demo")
def test_the_demo_runs_the_commands_of_the_first_page() -> None:
    commands = re.findall(
        r"^(unpatch \w+)", (ROOT / "docs" / "get-started" / "upgrade-and-migrate.md").read_text(), re.MULTILINE
    )
    shown = re.findall(r"^(unpatch \w+)", DEMO.read_text(), re.MULTILINE)
    # What takes back, or needs a reason or torch, is left to the page.
    told = dict.fromkeys(one for one in commands if one not in ("unpatch pin", "unpatch verify", "unpatch undo"))
    assert list(dict.fromkeys(shown)) == list(told)


@pytest.mark.slow
@pytest.mark.skipif(not DEMO.exists(), reason="the wheel has no demo")
def test_the_demo_ends_with_the_gate() -> None:
    done = subprocess.run([DEMO, Path(sys.executable).parent], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for said in (
        "Raises on 0.19.2 (2)",
        "+    from mcore_unpatch.compat.nemo_rl import (",
        "tiny_rl/new_patch.py",
        "exit code 1.",
    ):
        assert said in done.stdout
