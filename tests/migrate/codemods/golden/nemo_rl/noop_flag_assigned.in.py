import torch
from megatron.core.models.gpt import GPTModel


def model_forward(model: GPTModel, input_ids: torch.Tensor, fused: bool):
    kwargs = {}
    if fused:
        kwargs["labels"] = input_ids
        # Older signatures do not accept it.
        kwargs["return_logprobs_for_linear_ce_fusion"] = True  # noqa
    return model(input_ids, None, None, **kwargs)
