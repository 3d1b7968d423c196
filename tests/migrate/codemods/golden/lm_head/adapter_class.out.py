# golden: unsafe
from mcore_unpatch.compat import HeadInputs, attach
from megatron.core.models.gpt.gpt_model import GPTModel


class HiddenStates:
    """Hands out hidden states and remembers the weight."""

    def __init__(self, model: GPTModel):
        self.layer = model.output_layer
        self.weight = None
        holder = self

        def keep_weight(weight):
            # tied embeddings come as an argument
            holder.weight = weight

        self.hook_handle = attach(model, HeadInputs(keep=keep_weight))

    def remove(self):
        self.hook_handle.remove()
