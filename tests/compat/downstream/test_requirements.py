"""Importing a shim where something is missing says what, and how to get it."""

import pytest
from downstream.importing import SHIMS, said_by_imports

pytestmark = pytest.mark.ranks


@pytest.mark.parametrize("missing", ["torch", "megatron"])
def test_a_missing_package_is_named_with_the_extra(missing: str) -> None:
    known = "" if missing == "torch" else "import torch; "
    said = said_by_imports(list(SHIMS), f"{known}import sys; sys.modules[{missing!r}] = None")
    package = "megatron-core" if missing == "megatron" else missing
    how = "which is not installed; run `pip install 'mcore-unpatch[compat]'`."
    assert said == {module: f"ImportError: {name} needs {package}, {how}" for module, name in SHIMS.items()}
