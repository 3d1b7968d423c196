# golden: unsafe
import types

import torch.nn.functional as F
from megatron.core.models.gpt.gpt_model import GPTModel


def _fp32_forward(self, hidden, weight=None, runtime_gather_output=None):
    """The rollout engine has an fp32 head."""
    weight = self.weight if weight is None else weight
    logits = F.linear(hidden.float(), weight.float())
    return logits, None


def score_in_fp32(model: GPTModel):
    if model.post_process:
        model.output_layer.forward = types.MethodType(_fp32_forward, model.output_layer)  # as the engine does
