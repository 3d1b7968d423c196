# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def _postprocess(
    self, hidden_states, input_ids, position_ids, labels, rotary_pos_emb, rotary_pos_cos, rotary_pos_sin,
    mtp_in_postprocess=None, loss_mask=None, decoder_input=None, attention_mask=None, inference_params=None,
    packed_seq_params=None, sequence_len_offset=None, runtime_gather_output=None, extra_block_kwargs=None,
    inference_context=None, padding_mask=None, output_processor=None, output_processor_context=None,
):
    output_weight = None
    if self.share_embeddings_and_output_weights:
        output_weight = self.shared_embedding_or_output_weight()
    mtp_hidden = self.mtp(hidden_states)
    if output_processor is not None:
        return output_processor(
            hidden_states=hidden_states,
            output_layer=self.output_layer,
            output_weight=output_weight,
            labels=labels,
            loss_mask=loss_mask,
            input_ids=input_ids,
            position_ids=position_ids,
            attention_mask=attention_mask,
            decoder_input=decoder_input,
            inference_context=inference_context,
            packed_seq_params=packed_seq_params,
            runtime_gather_output=runtime_gather_output,
            context=output_processor_context,
            compute_language_model_loss=self.compute_language_model_loss,
            scale_logits=self._scale_logits,
            config=self.config,
        )
    # logits of the main head
    logits, _ = self.output_layer(hidden_states, weight=output_weight)
    entropy = logits.exp()
    return entropy + 0 * mtp_hidden


GPTModel._postprocess = _postprocess
