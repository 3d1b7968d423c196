"""What callers are told: a guard that turns fused kernels off where MTP is on, and models that a shim refuses."""

from __future__ import annotations

import pytest
from planning import migrate

IMPORT = "from verl.models.mcore.model_forward_fused import patch_fused_forward\n\n\n"


@pytest.mark.parametrize(
    ("test", "statement", "told"),
    [
        ("config.mtp.enable", "use_fused_kernels = False", True),
        ("enable_mtp", "config.use_fused_kernels = False", True),
        ("a and not has_MTP", "use_fused_kernels = False", True),
        ("config.enable", "use_fused_kernels = False", False),
        ("config.mtp.enable", "use_fused_kernels = True", False),
        ("config.mtp.enable", "use_kernels = False", False),
        ("config.mtp.enable", "print(use_fused_kernels)", False),
    ],
)
def test_a_guard_is_told(test: str, statement: str, told: bool) -> None:
    text = f"{IMPORT}def setup(model, config):\n    if {test}:\n        {statement}\n    patch_fused_forward(model)\n"
    result = migrate({"trainer.py": text.encode()})
    assert result.remarks("guard") == ([("trainer.py", 5)] if told else [])
    assert f"    if {test}:\n        {statement}\n".encode() in result.files["trainer.py"]


def test_a_model_that_repeats_its_mtp_layer_is_told_of() -> None:
    """The shim raises for it, where the patch cut before the first depth."""
    name = "patch_mtp_layer_get_embeddings"
    text = f"from verl.models.mcore.mtp_patch import {name}\n\n\ndef setup(model):\n    {name}(model)\n"
    [said] = [one for one in migrate({"trainer.py": text.encode()}).plan.remarks if one.kind == "by-hand"]
    assert (said.line, "`mtp_use_repeated_layer`" in said.text) == (1, True)
