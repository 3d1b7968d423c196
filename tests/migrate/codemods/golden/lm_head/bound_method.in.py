# golden: unsafe
import types

from megatron.core.models.gpt.gpt_model import GPTModel

HEAD = {}


def skip_projection(model: GPTModel):
    def passthrough(layer, inputs, weight=None, *args, **kwargs):
        # the projection happens in chunks, later
        HEAD["weight"] = weight if weight is not None else layer.weight
        return inputs, None

    model.output_layer.forward = types.MethodType(passthrough, model.output_layer)
