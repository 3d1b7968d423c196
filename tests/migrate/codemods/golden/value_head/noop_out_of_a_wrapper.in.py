# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel

from heads import LinearForLastLayer


def unwrap_language_model(model) -> GPTModel:
    while hasattr(model, "module"):
        model = model.module
    return model


def unwrap_once(model) -> GPTModel:
    return model.module


def make_value_model(model: GPTModel, config):
    model = unwrap_language_model(model)
    model.output_layer = LinearForLastLayer(input_size=config.hidden_size, output_size=1, config=config)


def make_another(model: GPTModel, config):
    critic = unwrap_once(model)
    critic.output_layer = LinearForLastLayer(input_size=config.hidden_size, output_size=1, config=config)
