"""What an import says where torch or megatron-core is missing or too old. Each in a Python of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

SHIMS = ["model_forward_fused", "mtp_patch", "model_forward_1f1b_overlap"]


def _import(shim: str, prelude: str = "") -> str:
    code = f"{prelude}\nimport mcore_unpatch.compat.verl.{shim}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("missing", ["torch", "triton", "megatron"])
def test_what_is_missing_and_which_extra_brings_it(missing: str) -> None:
    said = _import(SHIMS[0], f"import sys; sys.modules[{missing!r}] = None")
    name = "megatron-core" if missing == "megatron" else missing
    assert said.startswith(f"ImportError: mcore_unpatch.compat.verl needs {name}")
    assert "pip install 'mcore-unpatch[compat]'" in said


@pytest.mark.parametrize("shim", SHIMS)
def test_the_version_found_and_the_one_needed(shim: str, tmp_path: Path) -> None:
    # A stand-in with nothing but a version: whatever an old release can do, the check comes first.
    package = tmp_path / "megatron" / "core"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "0.16.1"\n')
    said = _import(shim, f"import sys; sys.path.insert(0, {str(tmp_path)!r})")
    assert "needs megatron-core >= 0.18" in said
    assert "found 0.16.1" in said
