"""Clip the queries of multi-latent attention, whatever else comes with them."""

from megatron.core.transformer.multi_latent_attention import MLASelfAttention

_qkv = MLASelfAttention.get_query_key_value_tensors


def get_query_key_value_tensors(self, hidden_states, *args, **kwargs):
    query, *rest = _qkv(self, hidden_states, *args, **kwargs)
    return (query.clamp(-0.5, 0.5), *rest)


def install():
    MLASelfAttention.get_query_key_value_tensors = get_query_key_value_tensors
