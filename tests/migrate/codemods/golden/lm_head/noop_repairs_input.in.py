# golden: unsafe
"""A wrapper that changes the input and still projects: nothing for the hook."""

from megatron.core.models.gpt.gpt_model import GPTModel


def fix_dtype(model: GPTModel):
    original = model.output_layer.forward

    def forward(hidden_states, weight=None, runtime_gather_output=None):
        return original(hidden_states.float(), weight=weight, runtime_gather_output=runtime_gather_output)

    model.output_layer.forward = forward
