# golden: unsafe
from heads import LinearForLastLayer
from megatron.core.models.gpt.gpt_model import GPTModel


def classifier(model: GPTModel, config, num_labels):
    model.output_layer = LinearForLastLayer(config.hidden_size, num_labels, config=config)
