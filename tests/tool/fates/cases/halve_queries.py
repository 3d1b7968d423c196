"""Halve the queries of plain attention."""

from megatron.core.transformer.attention import SelfAttention

_qkv = SelfAttention.get_query_key_value_tensors


def get_query_key_value_tensors(self, hidden_states, key_value_states=None):
    query, key, value = _qkv(self, hidden_states, key_value_states)
    return query / 2, key, value


SelfAttention.get_query_key_value_tensors = get_query_key_value_tensors
