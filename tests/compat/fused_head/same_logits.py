"""Shows whether the backward's logits are the forward's, to the last bit."""

import torch
from fused_head.oracle import grad_of, linear_logprob
from harness.rounding import assert_agree
from torch import Tensor

ROWS, WIDTH, VOCAB = 64, 512, 1000
TEMPERATURES = (1.0, 1.3)  # the reciprocal of the second is no power of two: scaling by it rounds


def check_same_logits(dtype: torch.dtype, device: str, temperature: float) -> None:
    """Of a token that is all but sure, the gradient is `1 - p`: it must be the `1 - p` of the forward's log-prob.

    All logits stand near 256, where two orders of addition, or a scaled product rounded here and not there, differ by
    some 3e-5; `1 - p` is near 1e-4. The first columns of the hidden states are the identity, so that the weight's
    gradient shows that of each row's own logit.
    """
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(ROWS, WIDTH, generator=draw)
    weight = torch.randn(VOCAB, WIDTH, generator=draw) * 2 / WIDTH**0.5
    hidden[:, :ROWS], weight[:, :ROWS] = torch.eye(ROWS), 0
    hidden[:, -1], weight[:, -1] = 32, 8
    labels = torch.randperm(VOCAB, generator=draw)[:ROWS]
    weight[labels, ROWS:-1] = hidden[:, ROWS:-1] * (20 * temperature / WIDTH)
    x, w, t = hidden.to(device, dtype), weight.to(device, dtype).requires_grad_(), labels.to(device)
    logprobs, _ = linear_logprob(x, w, t, temperature=temperature)
    logprobs.sum().backward()
    left = -torch.expm1(logprobs.detach())
    assert 1e-5 < left.median() < 1e-3
    own: Tensor = grad_of(w)[t, torch.arange(ROWS, device=device)] * temperature
    # `1 - p` is left of a difference of numbers near 1; logits that differ would move it by a third.
    assert_agree({"1 - p": own}, {"1 - p": left}, dtype, sums=1, peak=1 / left.median().item())
