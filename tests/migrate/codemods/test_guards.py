"""veRL switches its fused kernels off where MTP is on; with the shims that is not needed: told, not done."""

from __future__ import annotations

import pytest
from planning import migrate

from mcore_unpatch.codemods.edits import Options
from mcore_unpatch.megatron.versions import Version

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


DETACH = b"""\
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer


def detach(layer: MultiTokenPredictionLayer):
    layer._get_embeddings = _detached.__get__(layer)


def _detached(self, input_ids, position_ids, embedding, hidden_states, packed_seq_params=None, padding_mask=None):
    hidden_states = make_viewless_tensor(hidden_states, keep_graph=False)
    return input_ids, position_ids, padding_mask, embedding(input_ids).detach(), hidden_states
"""


@pytest.mark.parametrize(("pinned", "rewritten"), [((), True), (((0, 19),), True), (((0, 18), (0, 19)), False)])
def test_a_field_is_not_set_for_a_release_that_does_not_read_it(pinned: tuple[Version, ...], rewritten: bool) -> None:
    result = migrate({"m.py": DETACH}, Options(unsafe_fixes=True, pinned=lambda _: pinned))
    assert (b"mtp_detach_heads" in result.files["m.py"]) == rewritten
    assert bool(result.remarks("by-hand")) != rewritten
