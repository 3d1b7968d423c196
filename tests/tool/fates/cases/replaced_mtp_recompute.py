"""MTP layers are never recomputed."""

from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer


def _checkpointed_forward(self, forward_func, *args, **kwargs):
    return forward_func(*args, **kwargs)


MultiTokenPredictionLayer._checkpointed_forward = _checkpointed_forward
