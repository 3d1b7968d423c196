"""The divergence of a student's next-token distribution from a teacher's: two heads, tile by tile."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from .autograd import PassOptions
from .plan import located, row_scale
from .problem import NO_LOGIT, GradBuffer, GradOfTile, Problem, TakeGrad, gather, gather_stats, needed
from .settings import LogprobQuery, check_choice, check_number, check_tensors, math_dtype
from .torch_backend import Tiles, TorchBackend, TorchTiles

Kind = Literal["forward", "reverse", "jsd"]


@dataclass(frozen=True)
class Divergence:
    """KL(teacher, student), KL(student, teacher), or JSD: `m = beta * q + (1 - beta) * p` is the mixture of both."""

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

    def of_stats(self, stats: Tensor) -> Tensor:
        """A KL divergence from `merge_pair_stats` of the whole vocabulary: `sum q * (b - a)`."""
        mine, others = stats[2 + self.weighing], stats[3 - self.weighing]
        return stats[4] / mine - mine.log() + others.log()

    def sums(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Of each row over the columns: `p * f` and `q * g` of JSD."""
        mixture = self._log_mixture(a, b)
        student = (1 - self.beta) * (a.exp() * (a - mixture)).sum(-1)
        return student, self.beta * (b.exp() * (b - mixture)).sum(-1)

    def of_log_probs(self, a: Tensor, b: Tensor) -> Tensor:
        """Of each row from all its log-probs."""
        if self.kind == "jsd":
            return sum(self.sums(a, b), a.new_zeros(()))
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


_TILES_AT_ONCE = 4  # tiles that live at once: two buffers of each head, and what the formulas make of them


@dataclass(frozen=True)
class Head:
    """One of the two heads; `row_max` and `log_sum` are those of the whole vocabulary."""

    problem: Problem
    row_max: Tensor | None = None
    log_sum: Tensor | None = None


def merge_pair_stats(parts: Tensor, weighing: int) -> Tensor:
    """`[5, rows]` of both heads from those of several parts of the columns, `[parts, 5, rows]`.

    The maxima, the sums of `exp(z - row_max)` of logits `z`, and `cross`, for a KL divergence in one pass: the sum of
    `exp(z - row_max) * ((z - row_max) - (z' - row_max'))` with `z` of the head that weighs.
    """
    maxima, sums_exp = parts[:, :2], parts[:, 2:4]
    row_max = maxima.amax(0)
    max_change = maxima - row_max
    rescale = max_change.exp()
    shift = max_change[:, weighing] - max_change[:, 1 - weighing]
    cross = (rescale[:, weighing] * (parts[:, 4] + sums_exp[:, weighing] * shift)).sum(0)
    return torch.cat([row_max, (sums_exp * rescale).sum(0), cross[None]])


class Pair:
    """The tiles of two heads, cut alike: in every pass the same products of the same shape, and so the same logits."""

    def __init__(self, first: Head, second: Head, kept: tuple[Tensor, ...] = ()) -> None:
        self.heads, self.kept = (first, second), kept

    def make_room(self) -> None:
        """Let `stats` keep what a backward can use up; here nothing."""

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
        """As `TorchBackend.backward`, for the first head; `mean_f` and `grad` are `[rows]`."""
        tiles, grad_of_tile = self.grad_of_tile(divergence, mean_f, grad, weight_grad)
        tiles.multiply_out(grad_of_tile, hidden_grad, weight_grad)

    def stats(self, divergence: Divergence) -> Tensor:
        """As `merge_pair_stats` gives them, in one pass over this shard: each tile is merged into those before it."""
        tiles, weighing = self.tiles[0], divergence.weighing
        stats = tiles.new(5, tiles.problem.row_count).zero_()
        stats[:2] = NO_LOGIT
        for r in tiles.row_spans():
            for c in tiles.column_spans():
                z = [self._logits(index, r, c) for index in (0, 1)]
                maxima = torch.stack([logits.amax(1) for logits in z])
                for logits, highest in zip(z, maxima, strict=True):
                    logits.sub_(highest[:, None])
                exp_z = [torch.exp(logits, out=t.second(logits)) for logits, t in zip(z, self.tiles, strict=True)]
                apart = z[weighing].sub_(z[1 - weighing]).mul_(exp_z[weighing])
                here = torch.stack([*maxima, *(exp.sum(1) for exp in exp_z), apart.sum(1)])
                stats[:, r] = merge_pair_stats(torch.stack([stats[:, r], here]), weighing)
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


def linear_kl(
    student_hidden: Tensor,
    student_weight: Tensor,
    teacher_hidden: Tensor,
    teacher_weight: Tensor,
    *,
    kind: Kind = "forward",
    beta: float = 0.5,
    temperature: float | Tensor = 1.0,
    mask: Tensor | None = None,
    max_rows: int | None = None,
    vocab_size: int | None = None,
    tp_group: ProcessGroup | None = None,
    reduce_hidden_grad: bool = True,
    fuse_main_grad: bool = False,
    tile_bytes: int | None = None,
    keep_bytes: int = 0,
) -> Tensor:
    """The divergence of every token, `[...]` float32 (float64 for float64 weights); `[tokens, vocab]` is never built.

    Gradients go to whatever requires them: the student, and the teacher too unless it is detached.

    Args:
        student_hidden: `[..., h]`, and `teacher_hidden` `[..., h']`: the hidden sizes may differ.
        student_weight: `[vocab / tp, h]`, this rank's shard; `teacher_weight` `[vocab / tp, h']` has the same tokens.
        kind: "forward" is KL(teacher, student), "reverse" KL(student, teacher), "jsd" the generalised Jensen-Shannon
            divergence, `beta * KL(teacher, m) + (1 - beta) * KL(student, m)` with the mixture
            `m = beta * teacher + (1 - beta) * student`.
        beta: between 0 and 1; only used by "jsd".
        temperature: divides both heads' logits. The result is not multiplied by its square.
        keep_bytes: how many bytes of logits the forward may keep for the student's gradient, four for each token and
            word. JSD's values are then exact to 1e-4; the others do not change.

    The others are those of `linear_logprob`; `fuse_main_grad` is for the student's head alone.
    """
    query = LogprobQuery(
        temperature=temperature,
        mask=mask,
        max_rows=max_rows,
        vocab_size=vocab_size,
        tp_group=tp_group,
        reduce_hidden_grad=reduce_hidden_grad,
        fuse_main_grad=fuse_main_grad,
        tile_bytes=tile_bytes,
        keep_bytes=keep_bytes,
    )
    tensors = (student_hidden, student_weight, teacher_hidden, teacher_weight)
    return run_kl(tensors, Divergence(kind, beta), query)


def run_kl(
    tensors: tuple[Tensor, Tensor, Tensor, Tensor],
    divergence: Divergence,
    query: LogprobQuery,
    teacher_logit_scale: float = 1.0,
) -> Tensor:
    """`linear_kl` of hidden states and weight of student and teacher; the query's `logit_scale` is the student's."""
    student_hidden, student_weight, teacher_hidden, teacher_weight = tensors
    check_tensors(student_hidden, student_weight, query.temperature, mask=query.mask)
    check_tensors(teacher_hidden, teacher_weight, query.temperature, mask=query.mask)
    shape, dtype = student_hidden.shape[:-1], math_dtype(student_weight)
    if teacher_hidden.shape[:-1] != shape:
        raise ValueError(f"teacher_hidden: expected shape {list(shape)} + [h], got {list(teacher_hidden.shape)}")
    words, others_words, device = len(student_weight), len(teacher_weight), student_hidden.device
    if words != others_words:
        raise ValueError(f"teacher_weight: expected {words} rows to match the student, got {others_words} rows")
    if teacher_hidden.device != device:
        raise ValueError(f"teacher_hidden: expected device {device}, got {teacher_hidden.device}")
    rows, plan = located(student_hidden, student_weight, query)
    both = (query.logit_scale, teacher_logit_scale)
    student_scale, teacher_scale = (row_scale(rows, query.temperature, one, dtype) for one in both)
    options = _KlOptions(divergence, plan, (student_scale, teacher_scale))
    flat = [x.reshape(shape.numel(), x.shape[-1]) for x in (student_hidden, teacher_hidden)]
    arguments = (flat[0], student_weight, flat[1], teacher_weight, options)
    values: Tensor = _KlPass.apply(*arguments)  # type: ignore[no-untyped-call]
    return needed(rows.spread(values)[0])


@dataclass(frozen=True)
class _KlOptions:
    divergence: Divergence
    plan: PassOptions
    scales: tuple[float | Tensor, float | Tensor]

    def pair(self, tensors: Sequence[Tensor], swapped: bool = False, kept: tuple[Tensor, ...] = ()) -> Pair:
        """Student and teacher of hidden states and weight of each, then maxima and log_sums if they are known."""
        student, teacher = (
            self.plan.problem(*two, scale=scale)
            for two, scale in zip((tensors[:2], tensors[2:4]), self.scales, strict=True)
        )
        heads = [Head(student, *tensors[4:6]), Head(teacher, *tensors[6:8])]
        first, second = heads[::-1] if swapped else heads
        if type(self.plan.backend) is TorchBackend:
            return Pair(first, second, kept)
        from .triton.pair_kernels import TritonPair, pair_fits

        return (TritonPair if pair_fits(first.problem, second.problem) else Pair)(first, second, kept)


class _KlPass(torch.autograd.Function):
    """`(student hidden, student weight, teacher hidden, teacher weight) -> [rows]`."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *tensors, options = arguments
        with torch.autocast(tensors[0].device.type, enabled=False):
            divergence, shard = options.divergence, options.plan.shard
            pair = options.pair(tensors)
            pair.make_room()
            stats = pair.stats(divergence)
            if shard.group is not None and stats.numel():
                stats = merge_pair_stats(gather_stats(stats, shard), divergence.weighing)
            norms = [stats[0], stats[2].log(), stats[1], stats[3].log()]
            if divergence.kind == "jsd":  # whose mixture needs both norms first
                sums: Tensor = options.pair([*tensors, *norms], kept=pair.kept).sums(divergence)
                if shard.group is not None and sums.numel():
                    sums = gather(sums, shard.group).sum(0)
                value = sums.sum(0)
            else:  # the mean of f of the head that weighs; the other's gradient has none
                value = divergence.of_stats(stats)
                sums = torch.stack([value, value])
        ctx.options = options
        ctx.used_up = False
        ctx.save_for_backward(*tensors, *norms, sums, *pair.kept)
        return value

    @staticmethod
    def backward(ctx: Any, *output_grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("linear_kl has no second derivative; call backward without create_graph=True.")
        options: _KlOptions = ctx.options
        saved = ctx.saved_tensors
        tensors, sums, kept = saved[:8], saved[8], () if ctx.used_up else saved[9:]
        ctx.used_up = True  # the gradient is made in place; another backward makes the logits again
        gradients: list[Tensor | None] = []
        for index, divergence in enumerate((options.divergence, options.divergence.swapped())):
            needed = ctx.needs_input_grad[2 * index : 2 * index + 2]
            if not any(needed):
                gradients += [None, None]
                continue
            fused = None if index else options.plan.main_grad_of
            pair = options.pair(tensors, swapped=bool(index), kept=() if index else kept)
            run = partial(pair.backward, divergence, sums[index], output_grads[0])
            gradients += options.plan.gradients(pair.heads[0].problem, fused, needed, run)
        return (*gradients, None)
