# golden: unsafe
import types

from megatron.core import tensor_parallel
from megatron.core.models.gpt.gpt_model import GPTModel


class ChunkedHead:
    def __init__(self, output_layer):
        self.forward = output_layer.forward
        self.weight = None
        adapter = self

        def passthrough(layer, hidden_states, weight=None, *args, **kwargs):
            adapter.weight = weight
            return hidden_states, None

        output_layer.forward = types.MethodType(passthrough, output_layer)

    def logits(self, hidden_states):
        hidden_states = tensor_parallel.gather_from_sequence_parallel_region(hidden_states)
        return self.forward(hidden_states, weight=self.weight)[0]


def chunked(model: GPTModel):
    return ChunkedHead(model.output_layer)
