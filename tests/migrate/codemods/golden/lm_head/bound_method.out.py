# golden: unsafe
import types

from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel

HEAD = {}


def skip_projection(model: GPTModel):
    def passthrough(*, hidden_states, output_layer, output_weight, **_):
        layer = output_layer
        inputs = hidden_states
        weight = output_weight
        # the projection happens in chunks, later
        HEAD["weight"] = weight if weight is not None else layer.weight
        return inputs.transpose(0, 1).contiguous()

    attach(model, passthrough)
