"""Every statistic with every option at once, on vocabularies of a few tokens: against the formula, gradients too."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from mcore_unpatch.compat import linear_kl, vocab_pass

TOKENS, WIDTH = 3, 4
MASKS = {"no mask": None, "two rows": (1, 0, 1), "no row": (0, 0, 0)}
TEMPERATURES = {"no temperature": 1.0, "one": 0.7, "one for each": (0.5, 1.0, 2.0)}
VOCABULARIES = ((1, 1), (2, 1), (5, 4), (5, 5))  # rows of the weight, and how many of them are tokens
KINDS = (("forward", 0.5), ("reverse", 0.5), ("jsd", 0.5), ("jsd", 0.2))


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def as_tensor(values: Any) -> Any:
    return torch.tensor(values, dtype=torch.float64) if isinstance(values, tuple) else values


def weighed(results: dict[str, Tensor]) -> Tensor:
    """One number that every result with a gradient is a part of, each in its own way."""
    parts = [(value * (at + 2)).cos().sum() for at, value in enumerate(results.values()) if value.requires_grad]
    return torch.stack(parts).sum()


def with_gradients(function: Any, *leaves: Tensor) -> dict[str, Tensor]:
    own = [leaf.clone().requires_grad_() for leaf in leaves]
    results = function(*own)
    weighed(results).backward()  # type: ignore[no-untyped-call]
    return results | {f"gradient {at}": leaf.grad for at, leaf in enumerate(own) if leaf.grad is not None}


def check_same(found: dict[str, Tensor], truth: dict[str, Tensor]) -> None:
    assert found.keys() == truth.keys()
    for name, value in truth.items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-10, atol=1e-12, msg=lambda text, at=name: f"{at}: {text}"
        )


def plain(hidden: Tensor, weight: Tensor, tokens: int, **options: Any) -> dict[str, Tensor]:
    """All statistics from all logits."""
    temperature, mask, labels = options["temperature"], options["mask"], options["labels"]
    divisor = temperature[:, None] if isinstance(temperature, Tensor) else temperature
    there = (torch.arange(len(weight)) < tokens).expand(TOKENS, -1)
    z = (hidden @ weight.t() * options["logit_scale"] / divisor).where(there, -torch.inf)
    log_p = z.log_softmax(-1)
    p = log_p.exp()
    known = options["token_ids"] < tokens
    largest, at = z.max(-1)
    results = {
        "logprobs": log_p.gather(1, labels[:, None])[:, 0],
        "entropy": -(p * log_p.where(there, 0)).sum(-1),
        "logsumexp": z.logsumexp(-1),
        "topk_logits": largest[:, None],
        "topk_ids": at[:, None],
        "token_logprobs": log_p.gather(1, options["token_ids"].where(known, 0)).where(known, 0),
        "sum_pi_squared": p.square().sum(-1),
    }
    rows = torch.ones(TOKENS, dtype=torch.bool) if mask is None else mask != 0
    return {name: value.where(rows.view(-1, *[1] * (value.ndim - 1)), 0) for name, value in results.items()}


@pytest.mark.parametrize(("rows", "tokens"), VOCABULARIES)
def test_every_statistic_with_every_option(rows: int, tokens: int) -> None:
    hidden, weight = drawn(TOKENS, WIDTH), drawn(rows, WIDTH, seed=1)
    labels, ids = torch.arange(TOKENS) % tokens, torch.tensor([[0, rows], [0, 0], [tokens, 0]])
    for mask, temperature, tile_bytes, logit_scale in product(
        MASKS.values(), TEMPERATURES.values(), (None, 400), (1.0, 3.0)
    ):
        options: dict[str, Any] = {"mask": as_tensor(mask), "temperature": as_tensor(temperature), "labels": labels}
        options |= {"token_ids": ids.where(ids != rows, rows + 3), "logit_scale": logit_scale}
        truth = with_gradients(lambda h, w, o=options: plain(h, w, tokens, **o), hidden, weight)
        options |= {"topk": 1, "entropy": True, "sum_pi_squared": True, "vocab_size": tokens, "tile_bytes": tile_bytes}
        found = with_gradients(lambda h, w, o=options: vars(vocab_pass(h, w, **o)), hidden, weight)
        check_same(found, truth)


def divergence(tensors: tuple[Tensor, ...], tokens: int, kind: str, beta: float, temperature: Any) -> Tensor:
    divisor = temperature[:, None] if isinstance(temperature, Tensor) else temperature
    a, b = ((h @ w[:tokens].t() / divisor).log_softmax(-1) for h, w in (tensors[:2], tensors[2:]))
    m = (beta * b.exp() + (1 - beta) * a.exp()).log()
    if kind == "jsd":
        return beta * (b.exp() * (b - m)).sum(-1) + (1 - beta) * (a.exp() * (a - m)).sum(-1)
    return (b.exp() * (b - a)).sum(-1) if kind == "forward" else (a.exp() * (a - b)).sum(-1)


@pytest.mark.parametrize(("rows", "tokens"), VOCABULARIES)
def test_every_divergence_with_every_option(rows: int, tokens: int) -> None:
    tensors = [drawn(TOKENS, WIDTH), drawn(rows, WIDTH, seed=1), drawn(TOKENS, 3, seed=2), drawn(rows, 3, seed=3)]
    for (kind, beta), mask, temperature, tile_bytes in product(
        KINDS, map(as_tensor, MASKS.values()), map(as_tensor, TEMPERATURES.values()), (None, 1000)
    ):
        options: dict[str, Any] = {"kind": kind, "beta": beta, "mask": mask, "temperature": temperature}
        options |= {"vocab_size": tokens, "tile_bytes": tile_bytes}
        rows_of = torch.ones(TOKENS, dtype=torch.bool) if mask is None else mask != 0

        def exact(*leaves: Tensor, o: dict[str, Any] = options, live: Tensor = rows_of) -> dict[str, Tensor]:
            return {"value": divergence(leaves, tokens, o["kind"], o["beta"], o["temperature"]).where(live, 0)}

        found = with_gradients(lambda *leaves, o=options: {"value": linear_kl(*leaves, **o)}, *tensors)
        check_same(found, with_gradients(exact, *tensors))


def test_what_nobody_asks_for_is_none() -> None:
    out = vocab_pass(drawn(TOKENS, WIDTH), drawn(5, WIDTH, seed=1))
    assert [name for name, value in vars(out).items() if value is not None] == ["logsumexp"]
    for name, asked in {"entropy": "entropy", "sum_pi_squared": "sum_pi_squared"}.items():
        options: dict[str, Any] = {name: True}
        assert getattr(vocab_pass(drawn(TOKENS, WIDTH), drawn(5, WIDTH, seed=1), **options), asked) is not None
