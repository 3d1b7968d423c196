"""The update of the router's bias, with a limit on the bias."""

import importlib

import torch
from megatron.core import parallel_state

# The package gives the function of that name, so the module is asked for by its path.
finalizing = importlib.import_module("megatron.core.distributed.finalize_model_grads")


def get_updated_expert_bias(tokens_per_expert, expert_bias, expert_bias_update_rate):
    with torch.no_grad():
        group = parallel_state.get_tensor_and_data_parallel_group(with_context_parallel=True)
        torch.distributed.all_reduce(tokens_per_expert, group=group)
        average = tokens_per_expert.sum(dim=-1, keepdim=True) / tokens_per_expert.shape[-1]
        updated = expert_bias + torch.sign(average - tokens_per_expert) * expert_bias_update_rate
        return updated.clamp(-1, 1)


finalizing.get_updated_expert_bias = get_updated_expert_bias
