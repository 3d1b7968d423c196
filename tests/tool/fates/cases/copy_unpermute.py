"""Tokens back in their order, with one tensor less."""

import torch
from megatron.core.transformer.moe import token_dispatcher


def unpermute(
    permuted_tokens,
    sorted_indices,
    restore_shape,
    probs=None,
    routing_map=None,
    fused=False,
    drop_and_pad=False,
    **more,
):
    if fused or drop_and_pad:
        raise NotImplementedError("only the plain path")
    if probs is not None:
        permuted_tokens = permuted_tokens * probs.T.contiguous().masked_select(routing_map.T.contiguous())[:, None]
    output = torch.zeros(restore_shape, dtype=permuted_tokens.dtype, device=permuted_tokens.device)
    return output.index_add_(0, sorted_indices, permuted_tokens)


token_dispatcher.unpermute = unpermute
