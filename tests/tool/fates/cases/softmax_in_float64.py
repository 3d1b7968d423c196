"""The softmax of attention in float64."""

import torch
from megatron.core.fusions.fused_softmax import FusedScaleMaskSoftmax


class Softmax64:
    @staticmethod
    def forward(self, input, mask):  # noqa: A002 - bound to Megatron's class below
        scores = input.double() if self.scale is None else input.double() * self.scale
        return torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1).to(input.dtype)


FusedScaleMaskSoftmax.forward = Softmax64.forward
