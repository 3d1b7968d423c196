# golden: unsafe
from heads import LinearForLastLayer
from megatron.core.models.gpt.gpt_model import GPTModel


def forward(self, *args, **kwargs):
    return self.decoder(*args, **kwargs)


def critic(model: GPTModel, config):
    model.forward = forward.__get__(model)
    model.output_layer = LinearForLastLayer(config.hidden_size, 1, config=config)
