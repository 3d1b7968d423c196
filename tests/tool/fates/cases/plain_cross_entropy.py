"""Cross entropy in float32, for runs without tensor parallelism."""

import torch
from megatron.core import tensor_parallel


def to_original_dtype(loss, logits):
    return loss.to(logits.dtype)


def cross_entropy(vocab_parallel_logits, target, label_smoothing=0.0):
    loss = torch.nn.functional.cross_entropy(
        vocab_parallel_logits.float().flatten(0, -2),
        target.flatten(),
        reduction="none",
        label_smoothing=label_smoothing,
    )
    return to_original_dtype(loss.view_as(target), vocab_parallel_logits)


def install():
    tensor_parallel.vocab_parallel_cross_entropy = cross_entropy
