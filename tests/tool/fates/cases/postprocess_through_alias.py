"""Scale the decoder's output before the head, for a model with a learned temperature."""

from megatron.core.models.gpt.gpt_model import GPTModel


def install(temperature=2.0):
    head = GPTModel._postprocess

    def scaled(self, hidden_states, *args, **kwargs):
        run = head
        return run(self, hidden_states / temperature, *args, **kwargs)

    GPTModel._postprocess = scaled
