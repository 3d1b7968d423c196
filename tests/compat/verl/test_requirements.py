"""What an import says where torch or megatron-core is missing or too old. Each in a Python of its own."""

from pathlib import Path

import pytest
from downstream.importing import said_by_imports

pytestmark = pytest.mark.ranks
SHIMS = [
    f"mcore_unpatch.compat.verl.{name}" for name in ("model_forward_fused", "mtp_patch", "model_forward_1f1b_overlap")
]


@pytest.mark.parametrize("missing", ["torch", "triton", "megatron"])
def test_what_is_missing_and_which_extra_brings_it(missing: str) -> None:
    said = said_by_imports(SHIMS[:1], f"import sys; sys.modules[{missing!r}] = None")[SHIMS[0]]
    name = "megatron-core" if missing == "megatron" else missing
    assert said.startswith(f"ImportError: mcore_unpatch.compat.verl needs {name}")
    assert "pip install 'mcore-unpatch[compat]'" in said


def test_the_version_found_and_the_one_needed(tmp_path: Path) -> None:
    # A stand-in with nothing but a version: whatever an old release can do, the check comes first.
    package = tmp_path / "megatron" / "core"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "0.16.1"\n')
    said = said_by_imports(SHIMS, f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import torch")
    for shim in SHIMS:
        assert "needs megatron-core >= 0.18" in said[shim]
        assert "but 0.16.1 is installed" in said[shim]
