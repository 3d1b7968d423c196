"""A head without loss masks: only what our trainer needs of 0.16's parameters."""

from megatron.core.models.gpt.gpt_model import GPTModel


def _postprocess(
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
    inference_params=None,
    packed_seq_params=None,
    sequence_len_offset=None,
    runtime_gather_output=None,
    extra_block_kwargs=None,
    inference_context=None,
):
    logits, _ = self.output_layer(hidden_states, runtime_gather_output=runtime_gather_output)
    return self.compute_language_model_loss(labels, logits.float())


GPTModel._postprocess = _postprocess
