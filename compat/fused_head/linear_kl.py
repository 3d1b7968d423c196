"""The divergence of a student's next-token distribution from a teacher's, from hidden states and LM-head weights."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.autograd import spread_rows
from mcore_unpatch.compat.fused_head.backends import choose_backend
from mcore_unpatch.compat.fused_head.checks import (
    check_count,
    check_divergence,
    check_mask_count,
    check_options,
    check_tensors,
    check_vocabulary,
    waiting_is_free,
)
from mcore_unpatch.compat.fused_head.divergence import Divergence, Kind
from mcore_unpatch.compat.fused_head.linear_logprob import row_scale
from mcore_unpatch.compat.fused_head.pair import Head, Pair, TorchPair, merge_pair_stats
from mcore_unpatch.compat.fused_head.rows import select_rows
from mcore_unpatch.compat.fused_head.seam import Problem, WeightGradBuffer, math_dtype
from mcore_unpatch.compat.fused_head.shards import ShardSum, VocabShard, gather, locate_shard
from mcore_unpatch.compat.fused_head.tile_plan import default_tile_bytes
from mcore_unpatch.compat.fused_head.torch_backend import TorchBackend
from mcore_unpatch.compat.fused_head.weight_grad import announce_main_grad, fresh_grad, main_grad


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
    mask_count: int | None = None,
    vocab_size: int | None = None,
    tp_group: ProcessGroup | None = None,
    reduce_hidden_grad: bool = True,
    fuse_main_grad: bool = False,
    tile_bytes: int | None = None,
) -> Tensor:
    """The divergence of every token, `[...]` float32 (float64 for float64 weights); `[tokens, vocab]` is never built.

    Gradients go to whatever requires them: the student, and the teacher too unless it is detached.

    Args:
        student_hidden: `[..., h]`.
        student_weight: `[vocab / tp, h]`, this rank's shard of the student's LM head.
        teacher_hidden: `[..., h']`; the hidden sizes may differ.
        teacher_weight: `[vocab / tp, h']`, the same tokens as the student's shard.
        kind: "forward" is KL(teacher, student), "reverse" KL(student, teacher), "jsd" the generalised Jensen-Shannon
            divergence, `beta * KL(teacher, m) + (1 - beta) * KL(student, m)` with the mixture
            `m = beta * teacher + (1 - beta) * student`.
        beta: between 0 and 1; only used by "jsd".
        temperature: divides both heads' logits. The result is not multiplied by its square.
        mask: see `linear_logprob`.
        mask_count: see `linear_logprob`.
        vocab_size: see `linear_logprob`.
        tp_group: see `linear_logprob`; both heads are sharded over it.
        reduce_hidden_grad: see `linear_logprob`; applies to both hidden states.
        fuse_main_grad: add the gradient of the student's weight to its `main_grad`.
        tile_bytes: see `linear_logprob`; for the tiles of both heads together.
    """
    check_tensors(student_hidden, student_weight, None, mask, temperature)
    check_tensors(teacher_hidden, teacher_weight, None, mask, temperature)
    check_divergence(student_hidden, student_weight, teacher_hidden, teacher_weight, kind, beta)
    check_options(student_weight, "torch", "zero", None, tp_group, fuse_main_grad)
    check_mask_count(mask_count, mask)
    check_count("vocab_size", vocab_size, 1)
    check_count("tile_bytes", tile_bytes, 1)

    shape = student_hidden.shape[:-1]
    chosen = None if mask is None else mask.reshape(-1) != 0
    shard, live_count = locate_shard(
        student_weight,
        shape.numel() if chosen is None else chosen.count_nonzero(),
        tp_group if tp_group is not None and tp_group.size() > 1 else None,
        on_host=waiting_is_free(student_hidden) or (chosen is not None and mask_count is None),
    )
    rows = select_rows(shape, chosen, live_count, mask_count, check_vocabulary(shard.total, vocab_size, 0))
    options = _Options(
        divergence=Divergence(kind, beta),
        shard=shard,
        rows=rows.index,
        scale=row_scale(rows, temperature, 1.0, math_dtype(student_weight)),
        columns=shard.columns_below(vocab_size, len(student_weight)),
        tile_bytes=tile_bytes or default_tile_bytes(student_hidden.device.type),
        reduce_hidden_grad=reduce_hidden_grad,
        main_grad_of=student_weight if fuse_main_grad else None,
    )
    flat = [x.reshape(shape.numel(), x.shape[-1]) for x in (student_hidden, teacher_hidden)]
    values = _KlPass.apply(flat[0], student_weight, flat[1], teacher_weight, options)  # type: ignore[no-untyped-call]
    return rows.spread(values)


@dataclass(frozen=True)
class _Options:
    divergence: Divergence
    shard: VocabShard
    rows: Tensor | None
    scale: float | Tensor
    columns: int | Tensor
    tile_bytes: int
    reduce_hidden_grad: bool
    main_grad_of: Tensor | None

    def head(
        self, hidden: Tensor, weight: Tensor, row_max: Tensor | None = None, log_sum: Tensor | None = None
    ) -> Head:
        problem = Problem(
            hidden=hidden,
            weight=weight,
            rows=self.rows,
            targets=None,
            gather_columns=None,
            scale=self.scale,
            columns=self.columns,
            entropy=False,
            squares=False,
            topk=0,
            tile_bytes=self.tile_bytes,
            keep_bytes=0,
            batch_invariant=False,
        )
        return Head(problem, row_max, log_sum)


class _KlPass(torch.autograd.Function):
    """`(student hidden, student weight, teacher hidden, teacher weight) -> [rows]`."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *tensors, options = arguments
        with torch.autocast(tensors[0].device.type, enabled=False):
            heads = [options.head(*tensors[:2]), options.head(*tensors[2:])]
            divergence, group = options.divergence, options.shard.group
            stats = _pair_of(heads).stats(divergence)
            if group is not None and stats.cross.numel():
                stats = merge_pair_stats(gather(stats.packed(), group), divergence.weighing)
            log_sums = stats.sum_exp.log()
            norms = [stats.row_max[0], log_sums[0], stats.row_max[1], log_sums[1]]
            value: Tensor | None = divergence.of_stats(stats.sum_exp, stats.cross)
            if value is None:
                heads = [options.head(*tensors[:2], *norms[:2]), options.head(*tensors[2:], *norms[2:])]
                sums: Tensor = _pair_of(heads).sums(divergence)
                if group is not None and sums.numel():
                    sums = gather(sums, group).sum(0)
                value = sums.sum(0)
            else:  # the mean of f of the head that weighs; the other's gradient has none
                sums = torch.stack([value, value])
        ctx.options = options
        ctx.save_for_backward(*tensors, *norms, sums)
        return value

    @staticmethod
    def backward(ctx: Any, *output_grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("linear_kl has no second derivative; call backward without create_graph=True.")
        options: _Options = ctx.options
        student_hidden, student_weight, teacher_hidden, teacher_weight, *norms, sums = ctx.saved_tensors
        heads = [
            options.head(student_hidden, student_weight, norms[0], norms[1]),
            options.head(teacher_hidden, teacher_weight, norms[2], norms[3]),
        ]
        gradients: list[Tensor | None] = []
        for index, divergence in enumerate((options.divergence, options.divergence.swapped())):
            need_hidden, need_weight = ctx.needs_input_grad[2 * index : 2 * index + 2]
            gradients += _gradients_of(
                options,
                divergence,
                heads[::-1] if index else heads,
                None if index else options.main_grad_of,
                sums[index],
                output_grads[0],
                need_hidden,
                need_weight,
            )
        return (*gradients, None)


def _pair_of(heads: list[Head]) -> Pair:
    """Both heads, by the fused kernels where they can run."""
    first, second = heads
    if isinstance(choose_backend("auto", first.problem.weight.device), TorchBackend):
        return TorchPair(first, second)
    from mcore_unpatch.compat.fused_head.triton.pair import TritonPair, pair_fits

    return (TritonPair if pair_fits(first.problem, second.problem) else TorchPair)(first, second)


def _gradients_of(
    options: _Options,
    divergence: Divergence,
    heads: list[Head],
    fused: Tensor | None,
    mean_f: Tensor,
    grad: Tensor,
    need_hidden: bool,
    need_weight: bool,
) -> list[Tensor | None]:
    """The gradients of the hidden states and weight of the first head."""
    if not need_hidden and not need_weight:
        return [None, None]
    hidden, weight = heads[0].problem.hidden, heads[0].problem.weight
    with torch.autocast(hidden.device.type, enabled=False):
        sink: WeightGradBuffer | None = None
        if need_weight:
            sink = fresh_grad(weight) if fused is None else main_grad(fused)
        hidden_sum = ShardSum(options.shard.group if options.reduce_hidden_grad else None)
        _pair_of(heads).backward(divergence, mean_f, grad, hidden_sum.start if need_hidden else None, sink)
        part = hidden_sum.wait() if need_hidden else None
    weight_grad = None if sink is None else sink.buffer if fused is None else announce_main_grad(fused)
    return [spread_rows(part, hidden, options.rows, options.tile_bytes), weight_grad]
