"""Two heads over the same vocabulary, tile by tile: the sums and products of `linear_kl`.

Every pass makes each tile by the same product of the same shape, so all see the same logits to the last bit.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.divergence import Divergence
from mcore_unpatch.compat.fused_head.seam import NO_LOGIT, Problem, RowStats, WeightGradBuffer
from mcore_unpatch.compat.fused_head.torch_backend import _Tiles as TorchTiles

# Tiles that live at once: two buffers of each head, and what the formulas make of them.
_TILES_AT_ONCE = 4


@dataclass(frozen=True)
class Head:
    """One of the two heads; `row_max` and `log_sum` are those of the whole vocabulary."""

    problem: Problem
    row_max: Tensor | None = None
    log_sum: Tensor | None = None


class Pair:
    """The tiles of two heads, cut alike."""

    def __init__(self, mine: Head, other: Head) -> None:
        self.heads = (mine, other)
        budget = mine.problem.tile_bytes // _TILES_AT_ONCE
        self.tiles = [TorchTiles(replace(head.problem, tile_bytes=budget)) for head in self.heads]
        for tiles in self.tiles:
            tiles.tile_rows = min(t.tile_rows for t in self.tiles)
            tiles.tile_columns = min(t.tile_columns for t in self.tiles)

    def stats(self) -> tuple[RowStats, RowStats]:
        """Maximum and sum of exponentials of both heads on this shard."""
        mine, other = (self._stats_of(tiles) for tiles in self.tiles)
        return mine, other

    def sums(self, divergence: Divergence) -> Tensor:
        """`Divergence.sums` of this shard, `[2, rows]`."""
        mine = self.tiles[0]
        sums = mine.new(2, mine.problem.row_count).zero_()
        for r in mine.row_spans():
            for c in mine.column_spans():
                for out, part in zip(sums, divergence.sums(self._log_p(0, r, c), self._log_p(1, r, c)), strict=True):
                    out[r] += part
        return sums

    def backward(
        self,
        divergence: Divergence,
        mean_f: Tensor,
        grad: Tensor,
        hidden_grad: Callable[[Tensor], None] | None,
        weight_grad: WeightGradBuffer | None,
    ) -> None:
        """As `Backend.backward`, for the first head; `mean_f` and `grad` are `[rows]`."""
        scale = self.heads[0].problem.scale
        factor = grad[:, None] * scale

        def grad_of_tile(x: Tensor, w: Tensor, r: slice, c: slice) -> Tensor:
            dz = divergence.student_grad(self._log_p(0, r, c), self._log_p(1, r, c), mean_f[r])
            return dz.mul_(factor[r]).to(self.tiles[0].operand_dtype)

        self.tiles[0].multiply_out(grad_of_tile, hidden_grad, weight_grad)

    def _log_p(self, index: int, r: slice, c: slice) -> Tensor:
        tiles, head = self.tiles[index], self.heads[index]
        assert head.row_max is not None
        assert head.log_sum is not None
        z = tiles.logits(tiles.load_rows(r), tiles.load_columns(c), r, c)
        return z.sub_(head.row_max[r, None]).sub_(head.log_sum[r, None])

    def _stats_of(self, tiles: TorchTiles) -> RowStats:
        rows = tiles.problem.row_count
        row_max, sum_exp = tiles.new(rows).fill_(NO_LOGIT), tiles.new(rows).zero_()
        for r in tiles.row_spans():
            for c in tiles.column_spans():
                z = tiles.logits(tiles.load_rows(r), tiles.load_columns(c), r, c)
                new_max = torch.maximum(row_max[r], z.amax(1))
                sum_exp[r] = sum_exp[r] * (row_max[r] - new_max).exp() + z.sub_(new_max[:, None]).exp_().sum(1)
                row_max[r] = new_max
        return RowStats(row_max, sum_exp, None, None, None, None, None, None)
