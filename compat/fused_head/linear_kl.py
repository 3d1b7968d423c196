"""The divergence of a student's next-token distribution from a teacher's, from hidden states and LM-head weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.autograd import PassOptions
from mcore_unpatch.compat.fused_head.backends import choose_backend
from mcore_unpatch.compat.fused_head.checks import check_heads, check_tensors
from mcore_unpatch.compat.fused_head.linear_logprob import locate_rows, row_scale
from mcore_unpatch.compat.fused_head.memory import default_tile_bytes
from mcore_unpatch.compat.fused_head.pair import Divergence, Head, Kind, Pair, merge_pair_stats
from mcore_unpatch.compat.fused_head.problem import math_dtype
from mcore_unpatch.compat.fused_head.settings import HeadSettings, VocabQuery
from mcore_unpatch.compat.fused_head.shards import gather
from mcore_unpatch.compat.fused_head.torch_backend import TorchBackend


def linear_kl(
    student_hidden: Tensor,
    student_weight: Tensor,
    teacher_hidden: Tensor,
    teacher_weight: Tensor,
    *,
    kind: Kind = "forward",
    beta: float = 0.5,
    temperature: float | Tensor = 1.0,
    teacher_temperature: float | Tensor | None = None,
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
        teacher_temperature: divides the teacher's logits instead, if they have another one.
        mask: see `linear_logprob`.
        mask_count: see `linear_logprob`.
        vocab_size: see `linear_logprob`.
        tp_group: see `linear_logprob`; both heads are sharded over it.
        reduce_hidden_grad: see `linear_logprob`; applies to both hidden states.
        fuse_main_grad: add the gradient of the student's weight to its `main_grad`.
        tile_bytes: see `linear_logprob`; for the tiles of both heads together.
    """
    settings = HeadSettings(
        vocab_size=vocab_size,
        tp_group=tp_group,
        reduce_hidden_grad=reduce_hidden_grad,
        fuse_main_grad=fuse_main_grad,
        tile_bytes=tile_bytes,
    )
    tensors = (student_hidden, student_weight, teacher_hidden, teacher_weight)
    temperatures = (temperature, temperature if teacher_temperature is None else teacher_temperature)
    query = VocabQuery(mask=mask, mask_count=mask_count)
    return run_kl(tensors, Divergence(kind, beta), temperatures, query, settings)


def run_kl(
    tensors: tuple[Tensor, Tensor, Tensor, Tensor],
    divergence: Divergence,
    temperatures: tuple[float | Tensor, float | Tensor],
    query: VocabQuery,
    settings: HeadSettings,
) -> Tensor:
    """`linear_kl` of hidden states and weight of student and teacher, with a temperature for each."""
    student_hidden, student_weight, teacher_hidden, teacher_weight = tensors
    own, others = temperatures
    check_tensors(student_hidden, student_weight, None, query.mask, own)
    check_tensors(teacher_hidden, teacher_weight, None, query.mask, others)
    check_heads(*tensors)
    settings.check_weight(student_weight)
    shape, dtype = student_hidden.shape[:-1], math_dtype(student_weight)
    shard, rows = locate_rows(student_hidden, student_weight, query, settings)
    scale = row_scale(rows, own, 1.0, dtype)
    options = _KlOptions(
        divergence=divergence,
        shard=shard,
        rows=rows.index,
        scale=scale,
        teacher_scale=scale if others is own else row_scale(rows, others, 1.0, dtype),
        columns=shard.columns_below(settings.vocab_size, len(student_weight)),
        tile_bytes=settings.tile_bytes or default_tile_bytes(student_hidden.device.type),
        reduce_hidden_grad=settings.reduce_hidden_grad,
        main_grad_of=student_weight if settings.fuse_main_grad else None,
    )
    flat = [x.reshape(shape.numel(), x.shape[-1]) for x in (student_hidden, teacher_hidden)]
    arguments = (flat[0], student_weight, flat[1], teacher_weight, options)
    values: Tensor = _KlPass.apply(*arguments)  # type: ignore[no-untyped-call]
    return rows.spread(values)


@dataclass(frozen=True, kw_only=True)
class _KlOptions(PassOptions):
    divergence: Divergence
    teacher_scale: float | Tensor

    def heads(self, tensors: Sequence[Tensor], norms: Sequence[Tensor | None] = (None,) * 4) -> list[Head]:
        """Those of student and teacher; `norms` are the maximum and log_sum of each row, of the one and the other."""
        student, teacher = self.problem(*tensors[:2]), self.problem(*tensors[2:4])
        return [Head(student, *norms[:2]), Head(replace(teacher, scale=self.teacher_scale), *norms[2:])]


class _KlPass(torch.autograd.Function):
    """`(student hidden, student weight, teacher hidden, teacher weight) -> [rows]`."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *tensors, options = arguments
        with torch.autocast(tensors[0].device.type, enabled=False):
            divergence, group = options.divergence, options.shard.group
            stats = _pair_of(options.heads(tensors)).stats(divergence)
            if group is not None and stats.cross.numel():
                stats = merge_pair_stats(gather(stats.packed(), group), divergence.weighing)
            log_sums = stats.sum_exp.log()
            norms = [stats.row_max[0], log_sums[0], stats.row_max[1], log_sums[1]]
            value: Tensor | None = divergence.of_stats(stats.sum_exp, stats.cross)
            if value is None:
                sums: Tensor = _pair_of(options.heads(tensors, norms)).sums(divergence)
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
        options: _KlOptions = ctx.options
        *tensors, sums = ctx.saved_tensors
        heads = options.heads(tensors[:4], tensors[4:])
        gradients: list[Tensor | None] = []
        for index, divergence in enumerate((options.divergence, options.divergence.swapped())):
            needed = ctx.needs_input_grad[2 * index : 2 * index + 2]
            if not any(needed):
                gradients += [None, None]
                continue
            fused = None if index else options.main_grad_of
            pair = _pair_of(heads[::-1] if index else heads)
            run = partial(pair.backward, divergence, sums[index], output_grads[0])
            gradients += options.gradients(heads[index].problem, fused, needed, run)
        return (*gradients, None)


def _pair_of(heads: list[Head]) -> Pair:
    """Both heads, by the fused kernels where they can run."""
    first, second = heads
    if isinstance(choose_backend("auto", first.problem.weight.device), TorchBackend):
        return Pair(first, second)
    from mcore_unpatch.compat.fused_head.triton.pair_kernels import TritonPair, pair_fits

    return (TritonPair if pair_fits(first.problem, second.problem) else Pair)(first, second)
