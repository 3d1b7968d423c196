"""Two heads over the same vocabulary, tile by tile: the statistics, sums and products of `linear_kl`."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.checks import check_choice, check_number
from mcore_unpatch.compat.fused_head.problem import NO_LOGIT, GradBuffer, Problem, TakeGrad, needed
from mcore_unpatch.compat.fused_head.tiles import GradOfTile, Tiles
from mcore_unpatch.compat.fused_head.torch_backend import _TorchTiles as TorchTiles

Kind = Literal["forward", "reverse", "jsd"]


@dataclass(frozen=True)
class Divergence:
    """`forward`: KL(teacher, student). `reverse`: KL(student, teacher).

    `jsd`: `beta * KL(teacher, m) + (1 - beta) * KL(student, m)` with the mixture `m = beta * q + (1 - beta) * p`.
    """

    kind: Kind
    beta: float = 0.5

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, *get_args(Kind))
        check_number("beta", self.beta, positive=True)
        if self.beta >= 1:
            raise ValueError(f"beta: expected a number between 0 and 1, got {self.beta}")

    def swapped(self) -> "Divergence":
        """The same number with student and teacher swapped."""
        other: dict[Kind, Kind] = {"forward": "reverse", "reverse": "forward", "jsd": "jsd"}
        return Divergence(other[self.kind], 1 - self.beta)

    @property
    def weighing(self) -> int:
        """Whose probabilities weigh a KL divergence: 0 the student's, 1 the teacher's."""
        return 1 if self.kind == "forward" else 0

    def of_stats(self, sum_exp: Tensor, cross: Tensor) -> Tensor | None:
        """A KL divergence from `PairStats` of the whole vocabulary; None for JSD, whose mixture needs both norms first.

        `sum q * (b - a)`, where `b - a` is what `cross` has summed up and a constant of the row.
        """
        if self.kind == "jsd":
            return None
        mine, others = sum_exp[self.weighing], sum_exp[1 - self.weighing]
        return cross / mine - mine.log() + others.log()

    def sums(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Of each row over the columns: `p * f` and `q * g` of JSD."""
        mixture = self._log_mixture(a, b)
        student = (1 - self.beta) * (a.exp() * (a - mixture)).sum(-1)
        return student, self.beta * (b.exp() * (b - mixture)).sum(-1)

    def of_log_probs(self, a: Tensor, b: Tensor) -> Tensor:
        """Of each row from all its log-probs."""
        if self.kind == "jsd":
            return sum(self.sums(a, b), torch.zeros_like(a[..., 0]))
        return (b.exp() * (b - a)).sum(-1) if self.kind == "forward" else (a.exp() * (a - b)).sum(-1)

    def student_grad(self, a: Tensor, b: Tensor, student_sum: Tensor) -> Tensor:
        """The gradient of each of the student's logits; `student_sum` is `sum p * f` over the whole vocabulary."""
        if self.kind == "forward":
            return a.exp() - b.exp()
        if self.kind == "reverse":
            return a.exp() * (a - b - student_sum[:, None])
        return a.exp() * ((1 - self.beta) * (a - self._log_mixture(a, b)) - student_sum[:, None])

    def _log_mixture(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.logaddexp(a + math.log(1 - self.beta), b + math.log(self.beta))


# Tiles that live at once: two buffers of each head, and what the formulas make of them.
_TILES_AT_ONCE = 4


@dataclass(frozen=True)
class Head:
    """One of the two heads; `row_max` and `log_sum` are those of the whole vocabulary."""

    problem: Problem
    row_max: Tensor | None = None
    log_sum: Tensor | None = None


@dataclass(frozen=True)
class PairStats:
    """Per row, of both heads over some columns; `z` is a logit.

    `cross` is the sum of `exp(z - row_max) * ((z - row_max) - (z' - row_max'))`, where `z` is a logit of the head whose
    probabilities weigh the divergence and `z'` the other's: with it a KL divergence takes one pass.
    """

    row_max: Tensor  # [2, rows]
    sum_exp: Tensor  # [2, rows] sum exp(z - row_max)
    cross: Tensor  # [rows]

    def packed(self) -> Tensor:
        """`[5, rows]`."""
        return torch.cat([self.row_max, self.sum_exp, self.cross[None]])


def merge_pair_stats(parts: Tensor, weighing: int) -> PairStats:
    """From those of several parts of the columns, `[parts, 5, rows]` as `packed` gives them."""
    maxima, sums_exp = parts[:, :2], parts[:, 2:4]
    row_max = maxima.amax(0)
    max_change = maxima - row_max
    rescale = max_change.exp()
    shift = max_change[:, weighing] - max_change[:, 1 - weighing]
    cross = (rescale[:, weighing] * (parts[:, 4] + sums_exp[:, weighing] * shift)).sum(0)
    return PairStats(row_max, (sums_exp * rescale).sum(0), cross)


class Pair:
    """The tiles of two heads, cut alike: in every pass the same products of the same shape, and so the same logits."""

    def __init__(self, first: Head, second: Head) -> None:
        self.heads = (first, second)

    @cached_property
    def tiles(self) -> list[TorchTiles]:
        """Those of both heads."""
        budget = self.heads[0].problem.tile_bytes // _TILES_AT_ONCE
        both = [TorchTiles(replace(head.problem, tile_bytes=budget)) for head in self.heads]
        for tiles in both:
            tiles.tile_rows = min(t.tile_rows for t in both)
            tiles.tile_columns = min(t.tile_columns for t in both)
        return both

    def backward(
        self, divergence: Divergence, mean_f: Tensor, grad: Tensor, hidden_grad: TakeGrad, weight_grad: GradBuffer
    ) -> None:
        """As `Backend.backward`, for the first head; `mean_f` and `grad` are `[rows]`."""
        tiles, grad_of_tile = self.grad_of_tile(divergence, mean_f, grad, weight_grad)
        tiles.multiply_out(grad_of_tile, hidden_grad, weight_grad)

    def stats(self, divergence: Divergence) -> PairStats:
        """One pass over this shard: each tile is merged into what came before it."""
        tiles, weighing = self.tiles[0], divergence.weighing
        rows = tiles.problem.row_count
        stats = PairStats(tiles.new(2, rows).fill_(NO_LOGIT), tiles.new(2, rows).zero_(), tiles.new(rows).zero_())
        for r in tiles.row_spans():
            for c in tiles.column_spans():
                z = [self._logits(index, r, c) for index in (0, 1)]
                maxima = torch.stack([one.amax(1) for one in z])
                for one, highest in zip(z, maxima, strict=True):
                    one.sub_(highest[:, None])
                exp_z = [torch.exp(one, out=t.second(one)) for one, t in zip(z, self.tiles, strict=True)]
                sums = torch.stack([one.sum(1) for one in exp_z])
                apart = z[weighing].sub_(z[1 - weighing]).mul_(exp_z[weighing])
                here = PairStats(maxima, sums, apart.sum(1))
                before = PairStats(stats.row_max[:, r], stats.sum_exp[:, r], stats.cross[r])
                merged = merge_pair_stats(torch.stack([before.packed(), here.packed()]), weighing)
                stats.row_max[:, r], stats.sum_exp[:, r], stats.cross[r] = merged.row_max, merged.sum_exp, merged.cross
        return stats

    def sums(self, divergence: Divergence) -> Tensor:
        """`Divergence.sums` of this shard, `[2, rows]`, in a second pass."""
        first = self.tiles[0]
        sums = first.new(2, first.problem.row_count).zero_()
        for r in first.row_spans():
            for c in first.column_spans():
                for out, part in zip(sums, divergence.sums(self._log_p(0, r, c), self._log_p(1, r, c)), strict=True):
                    out[r] += part
        return sums

    def grad_of_tile(
        self, divergence: Divergence, mean_f: Tensor, grad: Tensor, weight_grad: GradBuffer
    ) -> tuple[Tiles, GradOfTile]:
        """How the gradient of a tile of the first head's logits is made: by `Divergence.student_grad`."""
        factor = grad[:, None] * self.heads[0].problem.scale

        def grad_of_tile(x: Tensor, w: Tensor, r: slice, c: slice) -> Tensor:
            dz = divergence.student_grad(self._log_p(0, r, c), self._log_p(1, r, c), mean_f[r])
            return dz.mul_(factor[r]).to(self.tiles[0].operand_dtype)

        return self.tiles[0], grad_of_tile

    def _logits(self, index: int, r: slice, c: slice) -> Tensor:
        tiles = self.tiles[index]
        return tiles.logits(tiles.load_rows(r), tiles.load_columns(c), r, c)

    def _log_p(self, index: int, r: slice, c: slice) -> Tensor:
        head = self.heads[index]
        return self._logits(index, r, c).sub_(needed(head.row_max)[r, None]).sub_(needed(head.log_sum)[r, None])
