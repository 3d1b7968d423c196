# golden: unsafe
import torch
from megatron.core.models.gpt.gpt_model import GPTModel


def capped_head(module, _args, outputs):
    """Logits between -cap and cap."""
    output, bias = outputs
    return module.cap * torch.tanh(output / module.cap), bias


def cap_logits(model: GPTModel, cap):
    model.output_layer.cap = cap
    model.output_layer.register_forward_hook(capped_head)
