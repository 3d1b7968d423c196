"""Clip the queries of multi-latent attention."""

from megatron.core.transformer.multi_latent_attention import MLASelfAttention

_qkv = MLASelfAttention.get_query_key_value_tensors


def get_query_key_value_tensors(self, hidden_states, *args, **kwargs):
    query, key, value = _qkv(self, hidden_states, *args, **kwargs)[:3]
    return query.clamp(-100, 100), key, value


MLASelfAttention.get_query_key_value_tensors = get_query_key_value_tensors
