"""Softmax in float32 for every type of input."""

import torch
from megatron.core.fusions.fused_softmax import FusedScaleMaskSoftmax


def forward(self, input, mask, *rest):  # noqa: A002 - Megatron's name
    scores = input.float() if self.scale is None else input.float() * self.scale
    return torch.softmax(scores.masked_fill(mask, -10000.0), dim=-1).to(input.dtype)


FusedScaleMaskSoftmax.forward = forward
