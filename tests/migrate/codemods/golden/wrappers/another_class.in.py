# golden: unsafe
import torch
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel import ColumnParallelLinear


class CappedHead(ColumnParallelLinear):
    def forward(self, *args, **kwargs):
        """Logits between -cap and cap."""
        output, bias = super(CappedHead, self).forward(*args, **kwargs)
        return self.cap * torch.tanh(output / self.cap), bias


def cap_logits(model: GPTModel, cap):
    model.output_layer.cap = cap
    model.output_layer.__class__ = CappedHead
