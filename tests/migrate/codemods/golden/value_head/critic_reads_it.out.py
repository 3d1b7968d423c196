# golden: unsafe
from heads import LinearForLastLayer
from mcore_unpatch.compat import add_value_head, output_layer_of
from megatron.core.models.gpt.gpt_model import GPTModel


def critic(model: GPTModel, config):
    add_value_head(model, LinearForLastLayer(config.hidden_size, 1, config=config))


def reset_critic(model):
    output_layer_of(model).weight.data.normal_(mean=0.0, std=0.02)


def save_critic(model, chunks, names):
    for name, chunk in zip(names, chunks):
        names[name] = getattr(output_layer_of(unwrap(chunk)), "weight", None) if model is not None else chunk.config[name]
