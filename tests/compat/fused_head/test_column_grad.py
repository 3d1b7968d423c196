"""The gradient of some columns: added up apart or in place, on what was there or not, and where there is nothing."""

import pytest
import torch

from mcore_unpatch.compat.fused_head.problem import Problem, WeightGradBuffer
from mcore_unpatch.compat.fused_head.torch_backend import TorchTiles


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_sum(apart: bool, accumulate: bool, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(torch.ones(3 * times, 2), torch.ones(5, 2), columns=4, tile_bytes=10_000)
    tiles = TorchTiles(problem)
    tiles.tile_rows, tiles.tile_columns = 3, 2
    monkeypatch.setattr(tiles, "sums_apart", lambda *_: apart)
    monkeypatch.setattr(tiles, "new", lambda *shape: torch.full(shape, float("nan")))
    target = WeightGradBuffer(torch.full((5, 2), 5.0), accumulate)
    tiles.multiply_out(lambda x, w, r, c: torch.ones(len(x), len(w)), None, target)
    before = 5.0 if accumulate else 0.0
    assert target.buffer.tolist() == [[3.0 * times + before] * 2] * 4 + [[before] * 2]  # the last is no vocabulary
