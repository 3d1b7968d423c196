import types

from megatron.core.models.gpt.gpt_model import GPTModel


def hidden_states_of(model: GPTModel, ids):
    def passthrough(self, hidden_states, weight=None, runtime_gather_output=None):
        return hidden_states, None

    model.output_layer.forward = types.MethodType(passthrough, model.output_layer)
    return model(ids, None, None)
