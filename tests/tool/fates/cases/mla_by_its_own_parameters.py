"""Note how long the sequences of multi-latent attention are; the parameters are those of the class, not of its base."""

from megatron.core.transformer.multi_latent_attention import MLASelfAttention

lengths = []
_qkv = MLASelfAttention.get_query_key_value_tensors


def get_query_key_value_tensors(
    self, hidden_states, key_value_states=None, position_ids=None, packed_seq_params=None, inference_context=None
):
    lengths.append(hidden_states.shape[0])
    return _qkv(
        self, hidden_states, key_value_states, position_ids, packed_seq_params, inference_context=inference_context
    )


MLASelfAttention.get_query_key_value_tensors = get_query_key_value_tensors
