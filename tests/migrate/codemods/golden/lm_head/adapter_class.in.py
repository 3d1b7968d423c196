# golden: unsafe
import types

from megatron.core.models.gpt.gpt_model import GPTModel


class HiddenStates:
    """Hands out hidden states and remembers the weight."""

    def __init__(self, model: GPTModel):
        self.layer = model.output_layer
        self.original = self.layer.forward
        self.weight = None
        holder = self

        def passthrough(layer, hidden_states, weight=None, *args, **kwargs):
            # tied embeddings come as an argument
            if weight is not None:
                holder.weight = weight
            return hidden_states, None

        self.layer.forward = types.MethodType(passthrough, self.layer)

    def remove(self):
        self.layer.forward = self.original
