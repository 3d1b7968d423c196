# golden: unsafe
import torch
from megatron.core.models.gpt.gpt_model import GPTModel


class ValueHead(torch.nn.Linear):
    def __init__(self, input_size, output_size=1, bias=False):
        super().__init__(input_size, output_size, bias=bias)

    def forward(self, input_, weight=None, runtime_gather_output=None):
        return super().forward(input_), None


def replace_output_layer(model: GPTModel, config):
    if not hasattr(model, "output_layer"):
        raise ValueError("build the model with post_process=True")
    model.output_layer = ValueHead(
        # one value for each token
        input_size=config.hidden_size,
        output_size=1,
    ).to(dtype=config.params_dtype)
    model.output_layer.weight.data.normal_(mean=0.0, std=0.02)
    model.vocab_size = 1
    return model


def model_provider(config, spec):
    return replace_output_layer(GPTModel(config, spec, 64, 16), config)
