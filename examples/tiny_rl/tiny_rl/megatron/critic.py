"""A critic is a GPTModel whose LM head is a value head."""

from megatron.core.models.gpt.gpt_model import GPTModel
from torch import nn


def make_critic(config, spec) -> GPTModel:
    model = GPTModel(config=config, transformer_layer_spec=spec, vocab_size=1, max_sequence_length=4096)
    model.output_layer = nn.Linear(config.hidden_size, 1, bias=False)
    return model
