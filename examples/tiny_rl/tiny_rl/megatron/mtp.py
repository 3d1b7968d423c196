"""Multi-token prediction for RL: the MTP loss must not reach the decoder."""

from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer


def patch_mtp(model: GPTModel):
    model._postprocess = _postprocess_with_mtp.__get__(model, GPTModel)
    for layer in model.mtp.layers:
        if isinstance(layer, MultiTokenPredictionLayer):
            layer._get_embeddings = _detached_embeddings.__get__(layer, MultiTokenPredictionLayer)


def _postprocess_with_mtp(
    self, hidden_states, input_ids, position_ids, labels, rotary_pos_emb, rotary_pos_cos, rotary_pos_sin,
    mtp_in_postprocess=None, loss_mask=None, decoder_input=None, attention_mask=None, inference_params=None,
    packed_seq_params=None, sequence_len_offset=None, runtime_gather_output=None, extra_block_kwargs=None,
    inference_context=None, is_spec_decode=None,
):
    if mtp_in_postprocess and labels is not None:
        hidden_states = self.mtp(input_ids=input_ids, position_ids=position_ids, hidden_states=hidden_states)
    logits, _ = self.output_layer(hidden_states)
    return logits.transpose(0, 1).contiguous()


def _detached_embeddings(self, input_ids, position_ids, embedding, hidden_states, packed_seq_params=None):
    decoder_input = embedding(input_ids=input_ids, position_ids=position_ids).detach()
    return input_ids, position_ids, decoder_input, hidden_states.detach()
