"""What `migrate` wrote is imported on every Megatron that the repository runs: real wheels, third parties stubbed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from builders import load_builder
from checking import write_files
from command import CLEAN, unpatch
from downloads import unpacked
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
    """With the older of two Megatrons, what was rewritten for both is imported, and what was for the newer is not."""
    top = tmp_path / "repository"
    write_files(top, {**CUDA, **NPU, "caller.py": CALLER})
    for name, options in (("first", ()), ("second", ("--stack=0.18.0",))):
        assert unpatch("migrate", "--allow-no-vcs", "--jobs=1", *options, cwd=top).code == CLEAN
        write_files(tmp_path / "written", {f"{name}.py": (top / "caller.py").read_text()})
    write_files(tmp_path / "stubs", {"verl/models/mcore/mtp_patch.py": "patch_postprocess = None\n"})
    known = filter(None, [os.environ.get("PYTHONPATH")])
    folders = (unpacked("megatron-core", "0.16.1"), tmp_path / "written", tmp_path / "stubs", *known)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORTED],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
        check=True,
    )
    (said,) = done.stdout.splitlines()
    assert said.startswith("second: mcore_unpatch.compat.verl needs megatron-core >= 0.18")


# The nearest releases to the stacks of each repository that have a hook, and to those that have none.
STACKS = {"verl": ("0.16.0", "0.18.0"), "mbridge": ("0.16.0", "0.19.2")}


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("options", [(), ("--unsafe-fixes",)], ids=["safe", "unsafe"])
def test_what_is_edited_is_imported_as_before_on_every_stack(
    tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    checkout = Path(os.environ.get("MCORE_UNPATCH_CHECKOUTS", "")) / name
    if not os.environ.get("MCORE_UNPATCH_CHECKOUTS") or not checkout.is_dir():
        pytest.skip("MCORE_UNPATCH_CHECKOUTS names no folder with the checkouts")
    for copy in ("before", "after"):
        shutil.copytree(checkout, tmp_path / copy, symlinks=True)
    unpatch("migrate", "--jobs=1", "--allow-dirty", *options, cwd=tmp_path / "after")
    diff = ["git", "diff", "--name-only", "--", "*.py"]
    told = subprocess.run(diff, cwd=tmp_path / "after", capture_output=True, text=True, check=True).stdout.split()
    oracle = load_builder("upgrade_oracle")
    for release in STACKS[name] if told else ():
        source = unpacked("megatron-core", release)
        seen = [oracle._observe(source, tmp_path / copy, told, [])["modules"] for copy in ("before", "after")]
        assert {path for path in told if seen[1][path]} <= {path for path in told if seen[0][path]}, release
