# golden: unsafe
from heads import LinearForLastLayer
from megatron.core.models.gpt.gpt_model import GPTModel


def score(model: GPTModel, config, batch):
    original = model.output_layer
    model.output_layer = LinearForLastLayer(config.hidden_size, 1, config=config)
    try:
        return model(*batch)
    finally:
        model.output_layer = original
