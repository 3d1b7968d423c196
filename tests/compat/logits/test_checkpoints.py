"""Lazy logits and checkpoints: gradients, or an error; frozen parts of a model likewise."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.oracle import gradients_of
from harness.rounding import assert_agree
from logits.lazily import lazy
from torch.utils.checkpoint import checkpoint

from mcore_unpatch.compat import DeferredHead, HookError, LogProbs, LogProbsAndEntropy, attach


@on_ranks
def test_a_whole_model_in_a_checkpoint(model: Any, inputs: Any) -> None:
    labels = inputs.pop("labels")
    ids = inputs.pop("input_ids")
    anchor = torch.zeros((), requires_grad=True)  # what people add so that a reentrant checkpoint has a graph

    def run(_: Any) -> Any:
        return model(ids, **inputs)

    with attach(model, DeferredHead()):
        with pytest.raises(HookError, match="use_reentrant=False"):
            checkpoint(run, anchor, use_reentrant=True)
        with torch.no_grad():
            assert not checkpoint(run, anchor, use_reentrant=True).requires_grad  # nothing to lose
        losses = checkpoint(lambda _: model(ids, labels=labels, **inputs), anchor, use_reentrant=True)
        torch.autograd.backward(-losses.sum())  # a tensor, too
        from_losses = gradients_of(model)
        model.zero_grad()
        torch.autograd.backward(checkpoint(run, anchor, use_reentrant=False).log_probs(labels).sum())
    assert_agree(from_losses, gradients_of(model))
    ours = gradients_of(model)
    model.zero_grad()
    with attach(model, LogProbs()):  # a tensor, which a reentrant checkpoint understands
        whole = checkpoint(lambda _: model(ids, labels=labels, **inputs), anchor, use_reentrant=True)
        torch.autograd.backward(whole.sum())
    assert_agree(ours, gradients_of(model))
    with attach(model, LogProbsAndEntropy()), pytest.raises(HookError, match="use_reentrant=False"):
        checkpoint(lambda _: model(ids, labels=labels, **inputs), anchor, use_reentrant=True)


def test_a_frozen_decoder_still_trains_the_head() -> None:
    logits = lazy()
    frozen = logits._with(logits.hidden.detach(), 1.0)
    assert frozen.requires_grad
    with pytest.raises(HookError, match="use_reentrant=False"):
        checkpoint(lambda z: z.entropy().sum(), frozen, use_reentrant=True)
    torch.autograd.backward(checkpoint(lambda z: z.entropy().sum(), frozen, use_reentrant=False))
    assert logits.head.weight.grad is not None


def test_tree_map_detaches_the_head_too() -> None:
    logits = lazy() / torch.full((1, 1, 1), 2.0)
    detached = torch.utils._pytree.tree_map(torch.Tensor.detach, logits)
    assert not detached.requires_grad
    assert not detached.entropy().requires_grad
    same = torch.utils._pytree.tree_map(lambda tensor: tensor, logits)
    assert same.head.weight is logits.head.weight
    torch.autograd.backward(same.entropy().sum())
    assert logits.head.weight.grad is not None
    frozen = logits._with(logits.hidden.detach(), 1.0)
    assert not torch.utils._pytree.tree_map(torch.Tensor.detach, frozen).entropy().requires_grad
