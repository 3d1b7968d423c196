"""The gradient of some columns: added up apart or in place, on what was there or not, and where there is nothing."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mcore_unpatch.compat.fused_head.problem import _ColumnGrad


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_sum(apart: bool, accumulate: bool, times: int) -> None:
    def multiply(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, add: bool) -> None:
        out.copy_(a @ b + (out if add else 0))

    tiles: Any = SimpleNamespace(
        multiply=multiply, sums_apart=lambda *_: apart, new=lambda *shape: torch.full(shape, float("nan"))
    )
    target: Any = SimpleNamespace(buffer=torch.full((4, 2), 5.0), accumulate=accumulate)
    some = _ColumnGrad(tiles, target, slice(1, 3), 2)
    for _ in range(times):
        some.add(torch.ones(2, 3), torch.ones(3, 2))
    some.store()
    expected = 3.0 * times + (5.0 if accumulate or not times else 0.0)
    assert target.buffer.tolist() == [[5.0] * 2, [expected] * 2, [expected] * 2, [5.0] * 2]
