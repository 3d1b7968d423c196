"""A real megatron-core from before the hook."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from downloads import unpacked
from downstream.importing import SHIMS
from limits import patience


@pytest.mark.ranks
def test_a_real_release_from_before_the_hook_is_named() -> None:
    old, beside = unpacked("megatron-core", "0.17.1"), Path(__file__).parents[1]
    path = os.pathsep.join(map(str, (old, beside, beside.parent, *filter(None, [os.environ.get("PYTHONPATH")]))))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("before_the_hook.py")), *SHIMS],
        env=os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(120),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    upgrade = "the hook was added in 0.18 and this is 0.17.1: upgrade megatron-core"
    assert said["attach"] == said["call"] == said["provide"] == f"GPTModel.forward has no output_processor; {upgrade}."
    assert "use a GPTModel of megatron-core 0.18 or later" in said["plan"]
    for module, name in SHIMS.items():
        assert said[module].startswith(f"{name} needs megatron-core >= 0.18")
        assert "but 0.17.1 is installed" in said[module]
