# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def _postprocess(
    self, hidden_states, input_ids, position_ids, labels, rotary_pos_emb, rotary_pos_cos, rotary_pos_sin,
    mtp_in_postprocess=None, loss_mask=None, decoder_input=None, attention_mask=None, inference_params=None,
    packed_seq_params=None, sequence_len_offset=None, runtime_gather_output=None, extra_block_kwargs=None,
    inference_context=None, padding_mask=None, output_processor=None, output_processor_context=None,
):
    if output_processor is not None:
        raise NotImplementedError("this _postprocess does not run `output_processor`")
    output_weight = None
    if self.share_embeddings_and_output_weights:
        output_weight = self.shared_embedding_or_output_weight()
    mtp_hidden = self.mtp(hidden_states)
    # logits of the main head
    logits, _ = self.output_layer(hidden_states, weight=output_weight)
    entropy = logits.exp()
    return entropy + 0 * mtp_hidden


GPTModel._postprocess = _postprocess
