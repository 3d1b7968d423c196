# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def double(model: GPTModel):
    def forward(self, _args, embedded):
        return embedded * (2 if self.training else 1)

    model.embedding.register_forward_hook(forward)
