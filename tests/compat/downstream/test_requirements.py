"""Importing a shim where something is missing says what, and how to get it."""

from pathlib import Path

import pytest
from downloads import unpacked
from downstream.importing import said_by_imports

pytestmark = pytest.mark.ranks
SHIMS = [f"mcore_unpatch.compat.{name}" for name in ("areal", "miles", "nemo_rl", "roll", "skyrl", "slime")]


@pytest.mark.parametrize(("module", "package"), [("torch", "torch"), ("megatron", "megatron-core")])
def test_a_missing_package_is_named_with_the_extra(module: str, package: str) -> None:
    known = "" if module == "torch" else "import torch; "
    said = said_by_imports(SHIMS, f"{known}import sys; sys.modules[{module!r}] = None")
    how = "which is not installed; run `pip install 'mcore-unpatch[compat]'`."
    assert said == {shim: f"ImportError: {shim} needs {package}, {how}" for shim in SHIMS}


def test_a_real_release_from_before_the_hook_is_named() -> None:
    known = "import torch, megatron.core.models.gpt.gpt_model"
    said = said_by_imports(SHIMS, known, str(Path(unpacked("megatron-core", "0.17.1"))))
    for shim in SHIMS:
        assert f"{shim} needs megatron-core >= 0.18" in said[shim]
        assert "but 0.17.1 is installed" in said[shim]
