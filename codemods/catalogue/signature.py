"""A replacement that stays and lacks what a newer Megatron passes, or takes the hook and never calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcore_unpatch.codemods.codemod import Example, PatchCodemod

if TYPE_CHECKING:
    from mcore_unpatch.codemods.seams.patch import Patch, Rewritten


class Signature(PatchCodemod):
    """The replacement gets the parameters, and refuses the hook."""

    name, title = "signature", "Signatures that fell behind"
    answers = ("MCU101", "MCU102", "MCU201", "MCU204", "MCU301")
    does = "fits the signature of the release"
    mends = True
    order = 1  # after those that take the patch away
    examples = (
        Example(
            "MCU101",
            before='''
from megatron.core.models.gpt.gpt_model import GPTModel


def forward(
    self,
    input_ids,
    position_ids,
    attention_mask,
    decoder_input=None,
    labels=None,
    inference_context=None,
    packed_seq_params=None,
    extra_block_kwargs=None,
    runtime_gather_output=None,
    *,
    inference_params=None,
    loss_mask=None,
):
    """Entropy beside the logits."""
    entropy = self.decoder(input_ids)
    return entropy


GPTModel.forward = forward
''',
            after='''
from megatron.core.models.gpt.gpt_model import GPTModel


def forward(
    self,
    input_ids,
    position_ids,
    attention_mask,
    decoder_input=None,
    labels=None,
    inference_context=None,
    packed_seq_params=None,
    extra_block_kwargs=None,
    runtime_gather_output=None,
    *,
    inference_params=None,
    loss_mask=None,
    padding_mask=None,
    output_processor=None,
    output_processor_context=None,
):
    """Entropy beside the logits."""
    if output_processor is not None:
        raise NotImplementedError("this forward does not run `output_processor`")
    entropy = self.decoder(input_ids)
    return entropy


GPTModel.forward = forward
''',
            unsafe=True,
        ),
    )
    covers = """
replacements of `forward`, `_postprocess` and `build_schedule_plan` whose parameters are those of an older release
"""
    applied = """
With `--unsafe-fixes`: a stop-gap, so that the patch works on the release in use. A call with `output_processor` raises
instead of dropping it in silence.
"""
    by_hand = """
- **The patch stays**, and the next release may break it again: move it to the hook.
"""

    def rewrite(self, patch: Patch) -> Rewritten | None:
        """The parameters that it lacks, and the hook refused."""
        from mcore_unpatch.codemods.seams.signature import close_gap

        return close_gap(patch)
