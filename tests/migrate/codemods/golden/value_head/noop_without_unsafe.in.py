from heads import LinearForLastLayer
from megatron.core.models.gpt.gpt_model import GPTModel


def critic(model: GPTModel, config):
    model.output_layer = LinearForLastLayer(config.hidden_size, 1, config=config)
