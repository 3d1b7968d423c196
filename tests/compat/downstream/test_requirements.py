"""Importing a shim where something is missing says what, and how to get it."""

import subprocess
import sys
from pathlib import Path

import pytest
from downloads import unpacked

SHIMS = ["mcore_unpatch.compat.nemo_rl", "mcore_unpatch.compat.skyrl"]


def said_by(code: str, path: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("shim", SHIMS)
@pytest.mark.parametrize(("module", "package"), [("torch", "torch"), ("megatron", "megatron-core")])
def test_a_missing_package_is_named_with_the_extra(shim: str, module: str, package: str) -> None:
    said = said_by(f"import sys; sys.modules[{module!r}] = None; import {shim}")
    assert said == f"ImportError: {shim} needs {package}, which is not installed: pip install 'mcore-unpatch[compat]'"


@pytest.mark.parametrize("shim", SHIMS)
def test_a_real_release_from_before_the_hook_is_named(shim: str) -> None:
    said = said_by(f"import {shim}", str(Path(unpacked("megatron-core", "0.17.1"))))
    assert f"{shim} needs megatron-core >= 0.18" in said
    assert "found 0.17.1" in said
