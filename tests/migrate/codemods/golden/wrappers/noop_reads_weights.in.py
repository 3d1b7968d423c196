# golden: unsafe
"""Megatron's DDP gathers parameters in a pre-hook of its own, which would come behind this one."""

from megatron.core.models.gpt.gpt_model import GPTModel


def scale_head(model: GPTModel, factor):
    original = model.output_layer.forward

    def forward(input_, weight=None, **kwargs):
        used = weight if weight is not None else model.output_layer.weight
        return original(input_, weight=used * factor, **kwargs)

    model.output_layer.forward = forward
