"""What `migrate` wrote is imported on every Megatron that the repository runs: real wheels, third parties stubbed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, unpatch
from downloads import unpacked
from stacks.test_several import CALLER, CUDA, NPU

pytestmark = pytest.mark.slow


def imported(folder: Path, release: str) -> str:
    """The last line of what importing `caller.py` says with a release of Megatron; nothing if it goes well."""
    write_files(folder / "stubs", {"verl/models/mcore/mtp_patch.py": "patch_postprocess = None\n"})
    path = os.pathsep.join(map(str, (unpacked("megatron-core", release), folder / "repository", folder / "stubs")))
    command = [sys.executable, "-W", "ignore", "-c", "import megatron.core.package_info, caller"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    return done.stderr.strip().rpartition("\n")[2]


def test_no_stack_is_left_with_an_import_that_fails(tmp_path: Path) -> None:
    top = tmp_path / "repository"
    write_files(top, {**CUDA, **NPU, "caller.py": CALLER})
    assert unpatch("migrate", "--allow-no-vcs", "--jobs=1", cwd=top).code == CLEAN
    assert imported(tmp_path, "0.16.1") == ""
    assert unpatch("migrate", "--allow-no-vcs", "--jobs=1", "--stack=0.18.0", cwd=top).code == CLEAN
    assert "ImportError: mcore_unpatch.compat.verl needs megatron-core >= 0.18" in imported(tmp_path, "0.16.1")
