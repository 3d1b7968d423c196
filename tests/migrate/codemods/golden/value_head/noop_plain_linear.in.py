# golden: unsafe
import torch
from megatron.core.models.gpt.gpt_model import GPTModel


def critic(model: GPTModel, config):
    model.output_layer = torch.nn.Linear(config.hidden_size, 1, bias=False)
