"""Routing as 0.17 had it, for sigmoid scores: each step ends in the type of the logits."""

import torch
from megatron.core.transformer.moe import router


def route(logits, topk, *, score_function="softmax", scaling_factor=None, expert_bias=None, **kwargs):
    if score_function != "sigmoid":
        raise NotImplementedError(score_function)
    scores = torch.sigmoid(logits.float()).type_as(logits)
    biased = scores if expert_bias is None else scores + expert_bias
    chosen = torch.topk(biased, k=topk, dim=1).indices
    scores = torch.gather(scores, 1, chosen).type_as(logits)
    probs = scores / (scores.sum(dim=-1, keepdim=True) + 1e-20) if topk > 1 else scores
    if scaling_factor:
        probs = probs * scaling_factor
    spread = torch.zeros_like(logits).scatter(1, chosen, probs)
    return spread, torch.zeros_like(logits).int().scatter(1, chosen, 1).bool()


router.topk_routing_with_score_function = route
