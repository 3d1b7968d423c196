import torch
from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs
from megatron.core.models.gpt import GPTModel


def model_forward(model: GPTModel, input_ids: torch.Tensor, fused: bool):
    kwargs = {}
    if fused:
        kwargs["labels"] = input_ids
        kwargs.update(linear_ce_fusion_kwargs(model, numbers="nemo_rl"))  # noqa
    return model(input_ids, None, None, **kwargs)
