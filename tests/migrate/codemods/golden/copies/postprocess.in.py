# golden: unsafe
"""The end of the forward alone; MTP is Megatron's, and the logits are capped."""

import torch
from megatron.core.inference.utils import InferenceMode
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.multi_token_prediction import process_mtp_loss

CAP = 2.0


def _capped(
    self,
    hidden_states,
    input_ids,
    position_ids,
    labels,
    rotary_pos_emb,
    rotary_pos_cos,
    rotary_pos_sin,
    mtp_in_postprocess=None,
    loss_mask=None,
    decoder_input=None,
    attention_mask=None,
    padding_mask=None,
    inference_params=None,
    packed_seq_params=None,
    sequence_len_offset=None,
    runtime_gather_output=None,
    extra_block_kwargs=None,
    inference_context=None,
    output_processor=None,
    output_processor_context=None,
):
    MEGATRON("_postprocess", "hook")
    logits, _ = self.output_layer(
        hidden_states, weight=output_weight, runtime_gather_output=runtime_gather_output
    )
    logits = CAP * torch.tanh(self._scale_logits(logits) / CAP)
    if labels is None:
        return logits.transpose(0, 1).contiguous()
    return self.compute_language_model_loss(labels, logits)


def patch_postprocess(model: GPTModel):
    model._postprocess = _capped.__get__(model, GPTModel)
