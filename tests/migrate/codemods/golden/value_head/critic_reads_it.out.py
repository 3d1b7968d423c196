# golden: unsafe
from heads import LinearForLastLayer
from mcore_unpatch.compat import add_value_head
from megatron.core.models.gpt.gpt_model import GPTModel


def critic(model: GPTModel, config):
    add_value_head(model, LinearForLastLayer(config.hidden_size, 1, config=config))


def reset_critic(model):
    getattr(getattr(model, "value_head", model), "output_layer").weight.data.normal_(mean=0.0, std=0.02)
