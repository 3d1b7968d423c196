"""Every statistic of a pass and every way to its gradients, against float64: run by the interpreter and on a GPU."""

from typing import Any

import torch
from fused_head.oracle import grad_of, make_inputs
from harness.rounding import assert_agree
from torch import Tensor

from mcore_unpatch.compat import VocabOutput, vocab_pass

NAMES = ("logprobs", "entropy", "logsumexp", "topk_logits", "token_logprobs", "sum_pi_squared")


def in_float64(hidden: Tensor, weight: Tensor, labels: Tensor, asked: dict[str, Any]) -> VocabOutput:
    """The same statistics from whole logits."""
    temperature, vocab_size, mask = asked.get("temperature", 1.0), asked.get("vocab_size"), asked.get("mask")
    divisor = temperature[:, None] if isinstance(temperature, Tensor) else temperature
    z = (hidden @ weight.t())[:, :vocab_size] * asked.get("logit_scale", 1.0) / divisor
    log_p, ids = z.log_softmax(-1), asked["token_ids"]
    known, token = ((x >= 0) & (x < z.shape[1]) for x in (ids, labels))
    live = labels != -100 if mask is None else (labels != -100) & (mask != 0)
    return VocabOutput(
        logprobs=log_p.gather(1, labels.where(token, 0)[:, None]).squeeze(1).where(live & token, 0),
        entropy=-(log_p.exp() * log_p).sum(-1).where(live, 0),
        logsumexp=z.logsumexp(-1).where(live, 0),
        topk_logits=z.topk(asked["topk"]).values.where(live[:, None], 0),
        topk_ids=None,
        token_logprobs=log_p.gather(1, ids.where(known, 0)).where(known & live[:, None], 0),
        sum_pi_squared=log_p.exp().square().sum(-1).where(live, 0),
    )


def outputs_and_gradients(
    out: VocabOutput, hidden: Tensor, weight: Tensor, used: tuple[str, ...] = NAMES
) -> dict[str, Tensor]:
    """The outputs, and the gradients of a random sum of those that are used."""
    draw = torch.Generator().manual_seed(7)
    loss = torch.zeros((), device=hidden.device, dtype=torch.float64)
    results = {}
    for name in NAMES:
        value = getattr(out, name)
        results[name] = value.detach()
        pull = torch.randn(value.shape, generator=draw).to(value.device)
        if name in used:
            loss = loss + (value * pull).sum()
    loss.backward()
    return results | {"hidden": grad_of(hidden), "weight": grad_of(weight)}


def check_statistics(
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int, int] = (150, 24, 700),
    spread: float = 1.0,
    used: tuple[str, ...] = NAMES,
    topk: int = 5,
    ids: int = 9,
    share: tuple[int, int] = (0, 1),
    **options: Any,
) -> None:
    """Values are float32, gradients in `dtype`, both exact but for rounding; `share` is the part of the vocabulary."""
    tokens, width, vocab = shape
    inputs = make_inputs(tokens, width, vocab, dtype)
    hidden, weight, labels = (inputs.hidden * spread).to(device), inputs.weight.to(device), inputs.labels.to(device)
    limit = options.get("vocab_size") or vocab
    labels = labels % limit
    draw = torch.Generator().manual_seed(3)
    token_ids = torch.randint(0, limit, (tokens, ids), generator=draw).to(device)
    token_ids[0, :2], token_ids[1 % tokens, 0] = token_ids[0, 0], -100  # one twice, one that is no token
    token_ids[2 % tokens, 0] = labels[2 % tokens]  # and one that is the label
    asked = {"token_ids": token_ids, "topk": min(topk, limit)} | options
    exact = [x.double().requires_grad_() for x in (hidden, weight)]
    truth = outputs_and_gradients(in_float64(*exact, labels, asked), *exact, used)
    rank, ranks = share
    mine = slice(vocab * rank // ranks, vocab * (rank + 1) // ranks)
    truth["weight"] = truth["weight"][mine]
    leaves = [x.clone().requires_grad_() for x in (hidden, weight[mine])]
    out = vocab_pass(*leaves, labels, entropy=True, sum_pi_squared=True, **asked)
    found = outputs_and_gradients(out, *leaves, used)
    for name, value in truth.items():
        stored = dtype if name in ("hidden", "weight") else torch.float32
        # A probability is as wrong in parts as its logarithm is in full, and that stands near -10.
        peak = spread * (5 if name == "sum_pi_squared" else 1)
        assert_agree({name: found[name]}, {name: value}, stored, max(shape), peak=peak)
