"""Importing a shim where something is missing or too old says what, and how to get it."""

from pathlib import Path

import pytest
from downloads import unpacked
from downstream.importing import said_by_imports

pytestmark = pytest.mark.ranks
PARTS = ("model_forward_fused", "mtp_patch", "model_forward_1f1b_overlap")
SHIMS = [*("areal", "miles", "nemo_rl", "roll", "skyrl", "slime"), *(f"verl.{part}" for part in PARTS)]
# The module that says it: veRL's is a package, which asks for all of its parts.
NAMES = {f"mcore_unpatch.compat.{shim}": f"mcore_unpatch.compat.{shim.partition('.')[0]}" for shim in SHIMS}


@pytest.mark.parametrize("missing", ["torch", "triton", "megatron"])
def test_a_missing_package_is_named_with_the_extra(missing: str) -> None:
    known = "" if missing == "torch" else "import torch; "
    said = said_by_imports(list(NAMES), f"{known}import sys; sys.modules[{missing!r}] = None")
    package = "megatron-core" if missing == "megatron" else missing
    how = "which is not installed; run `pip install 'mcore-unpatch[compat]'`."
    assert said == {module: f"ImportError: {name} needs {package}, {how}" for module, name in NAMES.items()}


def test_a_real_release_from_before_the_hook_is_named() -> None:
    known = "import torch, megatron.core.models.gpt.gpt_model"
    said = said_by_imports(list(NAMES), known, str(Path(unpacked("megatron-core", "0.17.1"))))
    for module, name in NAMES.items():
        assert f"{name} needs megatron-core >= 0.18" in said[module]
        assert "but 0.17.1 is installed" in said[module]
