# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def critic(model: GPTModel, head):
    model.output_layer = head
