# golden: unsafe
from mcore_unpatch.compat import HeadInputs, attach
from megatron.core import tensor_parallel
from megatron.core.models.gpt.gpt_model import GPTModel


class ChunkedHead:
    def __init__(self, model):
        output_layer = model.output_layer
        self.forward = output_layer.forward
        self.weight = None
        adapter = self

        def keep_weight(weight):
            adapter.weight = weight

        attach(model, HeadInputs(keep=keep_weight))

    def logits(self, hidden_states):
        hidden_states = tensor_parallel.gather_from_sequence_parallel_region(hidden_states)
        return self.forward(hidden_states, weight=self.weight)[0]


def chunked(model: GPTModel):
    return ChunkedHead(model)
