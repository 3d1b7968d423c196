# golden: unsafe
from mcore_unpatch.compat import add_value_head
from megatron.core.models.gpt.gpt_model import GPTModel

from heads import LinearForLastLayer


def unwrap_language_model(model) -> GPTModel:
    if hasattr(model, "language_model"):
        return model.language_model
    return model


def make_value_model(model: GPTModel, post_process, config):
    model = unwrap_language_model(model)
    if post_process:
        add_value_head(model, LinearForLastLayer(input_size=config.hidden_size, output_size=1, config=config))
