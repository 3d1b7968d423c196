# golden: unsafe
"""An adapter object that keeps the original and calls it in chunks: steps are reported."""

import types

from megatron.core import tensor_parallel


class ChunkedHead:
    def __init__(self, output_layer):
        self.forward = output_layer.forward
        adapter = self

        def passthrough(layer, hidden_states, weight=None, *args, **kwargs):
            adapter.weight = weight
            return hidden_states, None

        output_layer.forward = types.MethodType(passthrough, output_layer)

    def logits(self, hidden_states):
        hidden_states = tensor_parallel.gather_from_sequence_parallel_region(hidden_states)
        return self.forward(hidden_states, weight=self.weight)[0]
