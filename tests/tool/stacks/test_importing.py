"""What `migrate` wrote is imported on every Megatron that the repository runs: real wheels, third parties stubbed."""

import os
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, unpatch
from downloads import unpacked
from prepared import run_prepared
from stacks.test_several import CALLER, CUDA, NPU

pytestmark = pytest.mark.slow


IMPORTED = """
import megatron.core.package_info
for name in ("first", "second"):
    try:
        __import__(name)
    except ImportError as error:
        print(f"{name}: {error}")
"""


def test_no_stack_is_left_with_an_import_that_fails(tmp_path: Path) -> None:
    """With the older of two Megatrons, what was written for the newer falls back by the ImportError of its shim."""
    top = tmp_path / "repository"
    write_files(top, {**CUDA, **NPU, "caller.py": CALLER})
    for name, options in (("first", ()), ("second", ("--stack=0.18.0",))):
        assert unpatch("migrate", "--allow-no-vcs", "--jobs=1", *options, cwd=top).code == CLEAN
        write_files(tmp_path / "written", {f"{name}.py": (top / "caller.py").read_text()})
    write_files(tmp_path / "stubs", {"verl/models/mcore/mtp_patch.py": "patch_postprocess = None\n"})
    write_files(tmp_path, {"program/imports.py": IMPORTED})
    folders = os.pathsep.join(str(tmp_path / name) for name in ("written", "stubs"))
    program = tmp_path / "program" / "imports.py"
    done = run_prepared(unpacked("megatron-core", "0.16.1"), program, env={"PYTHONPATH": folders})
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "\nexcept ImportError:" in (tmp_path / "written/second.py").read_text()
