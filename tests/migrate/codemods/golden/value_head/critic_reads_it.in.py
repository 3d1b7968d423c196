# golden: unsafe
from heads import LinearForLastLayer
from megatron.core.models.gpt.gpt_model import GPTModel


def critic(model: GPTModel, config):
    model.output_layer = LinearForLastLayer(config.hidden_size, 1, config=config)


def reset_critic(model):
    getattr(model, "output_layer").weight.data.normal_(mean=0.0, std=0.02)


def save_critic(model, chunks, names):
    for name, chunk in zip(names, chunks):
        names[name] = getattr(unwrap(chunk).output_layer, "weight", None) if model is not None else chunk.config[name]
