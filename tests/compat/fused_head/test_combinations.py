"""Every statistic with every option at once, on vocabularies of a few tokens: against the formula, gradients too."""

from itertools import product
from typing import Any

import pytest
import torch
from fused_head.all_statistics import in_float64, outputs_and_gradients
from fused_head.test_linear_kl import KINDS, plain, results
from torch import Tensor

from mcore_unpatch.compat import linear_kl, vocab_pass

TOKENS, WIDTH = 3, 4
MASKS = {"no mask": None, "two rows": (1, 0, 1), "no row": (0, 0, 0)}
TEMPERATURES = {"no temperature": 1.0, "one": 0.7, "one for each": (0.5, 1.0, 2.0)}
VOCABULARIES = ((1, 1), (2, 1), (5, 4), (5, 5))  # rows of the weight, and how many of them are tokens


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def as_tensor(values: Any) -> Any:
    return torch.tensor(values, dtype=torch.float64) if isinstance(values, tuple) else values


def check_same(found: dict[str, Tensor], truth: dict[str, Tensor]) -> None:
    for name, value in truth.items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-10, atol=1e-12, msg=lambda text, at=name: f"{at}: {text}"
        )


@pytest.mark.parametrize(("rows", "tokens"), VOCABULARIES)
@pytest.mark.parametrize("strays", [False, True], ids=["tokens", "one ignored and one that is none"])
def test_every_statistic_with_every_option(rows: int, tokens: int, strays: bool) -> None:
    labels = torch.tensor([-100, tokens - 1, tokens]) if strays else torch.arange(TOKENS) % tokens
    ids = torch.tensor([[0, rows + 3], [0, 0], [tokens, -1]])
    for mask, temperature, tile_bytes, logit_scale in product(
        MASKS.values(), TEMPERATURES.values(), (None, 400), (1.0, 3.0)
    ):
        asked: dict[str, Any] = {"token_ids": ids, "topk": min(2, tokens), "vocab_size": tokens}
        asked |= {"mask": as_tensor(mask), "temperature": as_tensor(temperature), "logit_scale": logit_scale}
        leaves, exact = ([drawn(n, WIDTH, seed=n).requires_grad_() for n in (TOKENS, rows)] for _ in range(2))
        truth = outputs_and_gradients(in_float64(*exact, labels, asked), *exact)
        out = vocab_pass(*leaves, labels, entropy=True, sum_pi_squared=True, tile_bytes=tile_bytes, **asked)
        check_same(outputs_and_gradients(out, *leaves), truth)


@pytest.mark.parametrize(("rows", "tokens"), VOCABULARIES)
def test_every_divergence_with_every_option(rows: int, tokens: int) -> None:
    tensors = [drawn(TOKENS, WIDTH), drawn(rows, WIDTH, seed=1), drawn(TOKENS, 3, seed=2), drawn(rows, 3, seed=3)]
    for (kind, beta), mask, temperature, tile_bytes in product(
        KINDS, map(as_tensor, MASKS.values()), map(as_tensor, TEMPERATURES.values()), (None, 1000)
    ):
        options: dict[str, Any] = {"kind": kind, "beta": beta, "mask": mask, "temperature": temperature}
        call = options | {"vocab_size": tokens, "tile_bytes": tile_bytes}
        truth = results(lambda leaves, o=options: plain(leaves, **o, words=tokens), tensors)
        check_same(results(lambda leaves, o=call: linear_kl(*leaves, **o), tensors), truth)


def test_what_nobody_asks_for_is_none() -> None:
    hidden, weight = drawn(TOKENS, WIDTH), drawn(5, WIDTH, seed=1)
    assert [name for name, value in vars(vocab_pass(hidden, weight)).items() if value is not None] == ["logsumexp"]
    assert vocab_pass(hidden, weight, entropy=True).entropy is not None
    assert vocab_pass(hidden, weight, sum_pi_squared=True).sum_pi_squared is not None
