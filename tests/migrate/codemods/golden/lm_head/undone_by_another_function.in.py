# golden: unsafe
import types

from megatron.core.models.gpt.gpt_model import GPTModel


def patch_head(model: GPTModel):
    layer = model.output_layer
    if hasattr(layer, "_orig_forward"):
        return
    layer._orig_forward = layer.forward

    def passthrough(self, hidden, *args, **kwargs):
        return hidden, None

    layer.forward = types.MethodType(passthrough, layer)


def unpatch_head(model: GPTModel):
    layer = model.output_layer
    if hasattr(layer, "_orig_forward"):
        layer.forward = layer._orig_forward
        del layer._orig_forward
