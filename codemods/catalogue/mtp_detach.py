"""An encoder detach of one's own, in the place of an MTP layer's `_get_embeddings`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcore_unpatch.codemods.codemod import Example, PatchCodemod

if TYPE_CHECKING:
    from mcore_unpatch.codemods.seams.patch import Patch, Rewritten


class MtpDetach(PatchCodemod):
    """A field of the configuration detaches."""

    name, title = "mtp-detach", "Encoder detach"
    answers = ("MCU202",)
    does = "`config.mtp_detach_heads` detaches"
    examples = (
        Example(
            "MCU202",
            before="""
from megatron.core.models.gpt.gpt_model import GPTModel


def detach_encoder(model: GPTModel):
    for layer in model.mtp.layers:
        layer._get_embeddings = _detached.__get__(layer, layer.__class__)


def _detached(self, input_ids, position_ids, embedding, hidden_states, packed_seq_params=None, padding_mask=None):
    decoder_input = embedding(input_ids=input_ids, position_ids=position_ids).detach()
    return input_ids, position_ids, padding_mask, decoder_input, hidden_states.detach()
""",
            after="""
from megatron.core.models.gpt.gpt_model import GPTModel


def detach_encoder(model: GPTModel):
    for layer in model.mtp.layers:
        layer.config.mtp_detach_heads = True


def _detached(self, input_ids, position_ids, embedding, hidden_states, packed_seq_params=None, padding_mask=None):
    decoder_input = embedding(input_ids=input_ids, position_ids=position_ids).detach()
    return input_ids, position_ids, padding_mask, decoder_input, hidden_states.detach()
""",
            unsafe=True,
        ),
    )
    covers = """
`_get_embeddings` of an MTP layer replaced on the instance by a function that detaches, on megatron-core 0.19 and later
"""
    applied = """
With `--unsafe-fixes`. Where the patch is undone somewhere, or a patch of the MTP layers stays, the edit is only shown.
"""
    by_hand = """
- **More than one MTP layer.** `mtp_detach_heads` cuts at the entry of the block, not at every depth.
- **The output weight** is detached too, and the MTP gradients are clipped in a group of their own.
- The function that detached is left: delete it once nothing else uses it.
"""

    def rewrite(self, patch: Patch) -> Rewritten | str | None:
        """The field of the configuration, where the release has it."""
        from mcore_unpatch.codemods.seams.detach import by_config

        return by_config(patch)
