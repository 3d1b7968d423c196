# golden: unsafe target=0.18
import torch
from megatron.core.models.gpt.gpt_model import GPTModel


def score_in_fp32(model: GPTModel):
    layer = model.output_layer

    def in_fp32(input_, weight=None, runtime_gather_output=None):
        wide = input_.float()
        if weight is None:
            weight = layer.weight
        return torch.nn.functional.linear(wide, weight.float()), None

    layer.tag = "fp32"
    model.output_layer.forward = in_fp32
