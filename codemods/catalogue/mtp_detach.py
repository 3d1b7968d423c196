"""An encoder detach of one's own, in the place of an MTP layer's `_get_embeddings`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcore_unpatch.codemods.codemod import Example, PatchCodemod

if TYPE_CHECKING:
    from mcore_unpatch.codemods.seams.patch import Patch, Rewritten


class MtpDetach(PatchCodemod):
    """Hooks of PyTorch detach, or a field of the configuration."""

    name, title = "mtp-detach", "Encoder detach"
    answers = ("MCU202",)
    does = "the inputs of the MTP layer are detached without a patch"
    examples = (
        Example(
            "MCU202",
            before="""
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.multi_token_prediction import roll_tensor


def detach_encoder(model: GPTModel):
    for layer in model.mtp.layers:
        layer._get_embeddings = _detached.__get__(layer, layer.__class__)


def _detached(self, input_ids, position_ids, embedding, hidden_states, packed_seq_params=None, padding_mask=None):
    rolled = {"shifts": -1, "dims": -1, "cp_group": self.cp_group, "packed_seq_params": packed_seq_params}
    input_ids, _ = roll_tensor(input_ids, **rolled)
    position_ids, _ = roll_tensor(position_ids, **rolled)
    if padding_mask is not None:
        padding_mask, _ = roll_tensor(padding_mask, **rolled)
    decoder_input = embedding(input_ids=input_ids, position_ids=position_ids).detach()
    return input_ids, position_ids, padding_mask, decoder_input, hidden_states.detach()
""",
            after="""
from mcore_unpatch.compat import detach_mtp_inputs
from megatron.core.models.gpt.gpt_model import GPTModel


def detach_encoder(model: GPTModel):
    for layer in model.mtp.layers:
        detach_mtp_inputs(layer)
""",
            unsafe=True,
        ),
        Example(
            "MCU202",
            before="""
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer


def detach_encoder(layer: MultiTokenPredictionLayer, original):
    def detached(self, input_ids, position_ids, embedding, hidden_states, **kwargs):
        if self.config.mtp_training_mode == "standalone":  # the mode may change from call to call
            hidden_states = hidden_states.detach()
        return original(input_ids, position_ids, embedding, hidden_states, **kwargs)

    layer._get_embeddings = detached.__get__(layer)
""",
            unsafe=True,
        ),
    )
    covers = """
`_get_embeddings` of an MTP layer replaced on the instance by a function that detaches, and else does what
Megatron's own does or calls that
"""
    changes = """
- `.detach()` becomes `detach_mtp_inputs(layer)`: forward pre-hooks on the two norms through which the inputs of the
  layer go. Values and all gradients are the same, at every depth, on megatron-core 0.18 and later.
- `make_viewless_tensor(..., keep_graph=False)` cuts views alone, and hidden states are views before the first depth
  alone. On 0.19 and later it becomes `layer.config.mtp_detach_heads = True`, which cuts there too.
- A private function that nothing else uses goes with the assignment.
"""
    applied = """
With `--unsafe-fixes`. Where the patch is undone somewhere, or a patch of the MTP layers stays, the edit is only shown.
Left with the steps: a patch of the class, where no layer is at hand; a function that detaches under a condition, as
ROLL's does by the mode of training; one that calls or computes anything that Megatron's own method does not.
"""
    by_hand = """
- **`mtp_detach_heads`** detaches the output weight too, and clips the MTP gradients in a group of their own.
- **A function that does not shift** tokens and positions by one: Megatron does, so values change. The table says so.
"""

    def rewrite(self, patch: Patch) -> Rewritten | str | None:
        """The hooks, or the field where the release has it."""
        from mcore_unpatch.codemods.seams.detach import without_the_patch

        return without_the_patch(patch)
