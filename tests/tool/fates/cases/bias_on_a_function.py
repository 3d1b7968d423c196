"""Meant to freeze the router's bias; the name imported here is the function, not the module of that name."""

from megatron.core.distributed import finalize_model_grads


def unchanged(tokens_per_expert, expert_bias, expert_bias_update_rate):
    return expert_bias


finalize_model_grads.get_updated_expert_bias = unchanged
