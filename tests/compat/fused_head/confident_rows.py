"""Rows that are nearly sure, on any device: what the forward and the backward make of `1 - p`.

Trained heads share a component. No logit shows it, but the hidden gradient does: what a gradient of the logits loses in
its tail, where each number is tiny and together they are `1 - p`, is multiplied by it.
"""

import math
from typing import Any

import torch
from fused_head.oracle import Inputs, Results, grad_of, linear_logprob, materialised, results
from harness.rounding import assert_agree, distance
from torch import Tensor

PROBABILITIES = (0.1, 0.5, 0.9, 0.999, 0.99999)
WIDTH, SHARED = 40, 8
ALL = 1 << 34  # bytes: more than any test needs
# As a loss scale does: 16-bit floats end at 6e-8, whoever holds them. bfloat16 needs none.
LOSS_SCALE = {torch.float16: 1024.0, torch.bfloat16: 1.0}


def confident(
    p: float, dtype: torch.dtype, tokens: int, vocab: int, device: str, pulls: tuple[float, float], spread: float = 2.5
) -> Inputs:
    """Inputs whose labels have about the probability `p`; `pulls` are the gradients of log-probs and entropy."""
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, WIDTH, generator=draw)
    weight = torch.randn(vocab, WIDTH, generator=draw) * spread / WIDTH**0.5
    labels = torch.randperm(vocab, generator=draw)[:tokens]
    logits = hidden @ weight.t()
    own = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -torch.inf).logsumexp(1, keepdim=True)
    missing = others + math.log(p / (1 - p)) - own
    weight[labels] += missing * hidden / hidden.square().sum(1, keepdim=True)
    hidden = torch.cat([hidden, torch.zeros(tokens, SHARED)], 1).to(device, dtype)
    weight = torch.cat([weight, torch.ones(vocab, SHARED)], 1).to(device, dtype)
    each = (torch.rand(2, tokens, generator=draw) + 0.5) * LOSS_SCALE[dtype]
    logprob_grad, entropy_grad = (pull * grad.to(device) for pull, grad in zip(pulls, each, strict=True))
    return Inputs(hidden, weight, labels.to(device), logprob_grad, entropy_grad)


def kept_unkept_and_true(inputs: Inputs) -> tuple[Results, Results, Results]:
    """With all logits kept, with none, and in float64."""
    kept, unkept = (results(linear_logprob, inputs, keep_bytes=keep_bytes) for keep_bytes in (ALL, 0))
    return kept, unkept, results(materialised, inputs.in_float64())


def check_kept_is_no_worse(p: float, dtype: torch.dtype, device: str, tokens: int = 24, vocab: int = 8192) -> None:
    """Of log-probs alone and of the entropy alone: the same values, and gradients as near to float64.

    And near to each other: at the largest probabilities both miss what float32 rounds away of `1 - p`.
    """
    for pulls in ((1.0, 0.0), (0.0, 1.0)):
        kept, unkept, truth = kept_unkept_and_true(confident(p, dtype, tokens, vocab, device, pulls))
        for name in ("logprobs", "entropy"):
            assert torch.equal(kept[name], unkept[name])
        for name in ("hidden.grad", "weight.grad"):
            ours, plain = {name: kept[name]}, {name: unkept[name]}
            assert_agree(ours, {name: truth[name]}, dtype, vocab, plain)
            assert_agree(ours, plain, dtype, vocab)


def errors(found: Results, truth: Results) -> dict[str, Any]:
    """Of the gradients, relative to their size: of a median row of hidden states, and of the whole weight."""
    name = "hidden.grad"
    by_row = [distance(row, true) for row, true in zip(found[name], truth[name], strict=True)]
    return {"dH": sorted(by_row)[len(by_row) // 2], "dW": distance(found["weight.grad"], truth["weight.grad"])}


ROWS, SURE_WIDTH, VOCAB = 64, 512, 1000
TEMPERATURES = (1.0, 1.3)  # the reciprocal of the second is no power of two: scaling by it rounds


def check_same_logits(dtype: torch.dtype, device: str, temperature: float) -> None:
    """Of a token that is all but sure, the gradient is `1 - p`: it must be the `1 - p` of the forward's log-prob.

    All logits stand near 256, where two orders of addition, or a scaled product rounded here and not there, differ by
    some 3e-5; `1 - p` is near 1e-4. The first columns of the hidden states are the identity, so that the weight's
    gradient shows that of each row's own logit.
    """
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(ROWS, SURE_WIDTH, generator=draw)
    weight = torch.randn(VOCAB, SURE_WIDTH, generator=draw) * 2 / SURE_WIDTH**0.5
    hidden[:, :ROWS], weight[:, :ROWS] = torch.eye(ROWS), 0
    hidden[:, -1], weight[:, -1] = 32, 8
    labels = torch.randperm(VOCAB, generator=draw)[:ROWS]
    weight[labels, ROWS:-1] = hidden[:, ROWS:-1] * (20 * temperature / SURE_WIDTH)
    x, w, t = hidden.to(device, dtype), weight.to(device, dtype).requires_grad_(), labels.to(device)
    logprobs, _ = linear_logprob(x, w, t, temperature=temperature)
    logprobs.sum().backward()
    left = -torch.expm1(logprobs.detach())
    assert 1e-5 < left.median() < 1e-3
    own: Tensor = grad_of(w)[t, torch.arange(ROWS, device=device)] * temperature
    # `1 - p` is left of a difference of numbers near 1; logits that differ would move it by a third.
    assert_agree({"1 - p": own}, {"1 - p": left}, dtype, sums=1, peak=1 / left.median().item())
