# golden: unsafe
import torch
from megatron.core.models.gpt.gpt_model import GPTModel


class Score(torch.nn.Linear):
    def __init__(self, hidden_size, config):
        super().__init__(hidden_size, 1, bias=False, dtype=config.params_dtype)

    def forward(self, hidden, weight=None, runtime_gather_output=None):
        return super().forward(hidden), None


def hook(chunks: list[GPTModel], hidden_size, config):
    for chunk in chunks:
        if chunk.post_process:
            chunk.output_layer = Score(hidden_size, config)
    return chunks


def model_provider(config, spec):
    return hook([GPTModel(config, spec, 64, 16)], config.hidden_size, config)[0]
