"""Bias, dropout and residual in one place for our profiler."""

import torch
from megatron.core.fusions import fused_bias_dropout


def _bias_dropout_add_func(x_with_bias, residual, prob, training):
    x, bias = x_with_bias
    residual = residual.to(x.dtype)
    if bias is not None:
        x = x + bias
    return residual + torch.nn.functional.dropout(x, p=prob, training=training)


fused_bias_dropout._bias_dropout_add_func = _bias_dropout_add_func
