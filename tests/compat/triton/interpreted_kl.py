"""The fused kernel of `linear_kl` against float64: by Triton's interpreter, or on a GPU. Run by test_interpreted."""

from typing import Any
from unittest import mock

import pytest
import torch
from fused_head.oracle import error
from fused_head.test_linear_kl import KINDS, VOCAB, heads, plain, results

from mcore_unpatch.compat import linear_kl
from mcore_unpatch.compat.fused_head.pair import Pair
from mcore_unpatch.compat.fused_head.triton import launch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True, params=[True, False], ids=["tma", "pointers"])
def _no_way_round(request: pytest.FixtureRequest) -> Any:
    with (
        mock.patch.object(Pair, "sums", side_effect=AssertionError("torch")),
        mock.patch.object(launch, "has_tma", return_value=request.param),
    ):
        yield


def check(kind: str, beta: float, tokens: int = 150, vocab: int = VOCAB + 300, **options: Any) -> None:
    tensors = [x.to(DEVICE) for x in heads(torch.float16, tokens, vocab)]
    tensors[2], tensors[3] = (torch.nn.functional.pad(x, (0, 4)) for x in tensors[2:])  # 16 wide: a multiple of 8
    mask, temperature = options.get("mask"), options.get("temperature", 1.0)
    exact = [x.double() for x in tensors]
    truth = results(lambda leaves: plain(leaves, kind, beta, temperature, mask), exact)
    call: dict[str, Any] = {"kind": kind, "beta": beta, "vocab_size": VOCAB} | options
    found = results(lambda leaves: linear_kl(*leaves, **call), tensors)
    for name, value in truth.items():
        assert error(found[name], value) < (2e-6 if name == "value" else 1e-3), name


@pytest.mark.parametrize(("kind", "beta"), KINDS)
def test_values_and_gradients(kind: str, beta: float) -> None:
    check(kind, beta)
    check(kind, beta, mask=torch.arange(150, device=DEVICE) % 3, temperature=0.7)
    check(kind, beta, temperature=torch.rand(150, device=DEVICE) + 0.5, tile_bytes=90_000)
