"""The one autograd function: statistics of the vocabulary per row, and their gradients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.memory import spans
from mcore_unpatch.compat.fused_head.problem import (
    NO_LOGIT,
    Backend,
    GradBuffer,
    Problem,
    Query,
    RowGrads,
    TakeGrad,
    needed,
)
from mcore_unpatch.compat.fused_head.shards import ShardSum, VocabShard, merge_stats
from mcore_unpatch.compat.fused_head.weight_grad import announce_main_grad, fresh_grad, main_grad

# Rows whose gradient is rounded at a time where it goes back to all tokens: all at once would be another copy of it.
_SPREAD_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class PassOptions(Query):
    """A query and where its results go. Tensors are copies, safe from later writes."""

    shard: VocabShard
    reduce_hidden_grad: bool
    main_grad_of: Tensor | None  # the parameter itself: only it carries `main_grad`
    backend: Backend | None = None

    def problem(self, hidden: Tensor, weight: Tensor) -> Problem:
        """The part of the call a backend sees."""
        return Problem(hidden, weight, **{f.name: getattr(self, f.name) for f in fields(Query)})

    def gradients(
        self,
        problem: Problem,
        main_grad_of: Tensor | None,
        needed: Sequence[bool],
        backward: Callable[[TakeGrad, GradBuffer], None],
    ) -> tuple[Tensor | None, Tensor | None]:
        """Those of hidden states and weight, as `needed`, which `backward` adds up as `Backend.backward` does."""
        need_hidden, need_weight = needed
        hidden, weight = problem.hidden, problem.weight
        with torch.autocast(hidden.device.type, enabled=False):
            sink = None
            if need_weight:
                sink = fresh_grad(weight) if main_grad_of is None else main_grad(main_grad_of)
            hidden_sum = ShardSum(self.shard.group if self.reduce_hidden_grad else None)
            backward(hidden_sum.start if need_hidden else None, sink)
            part = hidden_sum.wait() if need_hidden else None
        weight_grad = None if sink is None else sink.buffer
        if sink is not None and main_grad_of is not None:
            weight_grad = announce_main_grad(main_grad_of)
        return _spread_rows(part, hidden, self.rows, self.tile_bytes), weight_grad


class VocabPass(torch.autograd.Function):
    """`(hidden [tokens, h], weight)` to the statistics of the rows.

    logprob, entropy, logsumexp, sum of squared probabilities `[rows]`, log-probs of the gathered columns, top-k logits
    and ids `[rows, k]`, moments `[5, rows]` with the maximum last. Autocast is off inside: the product's dtype is the
    weight's, in the forward and in the backward.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, options: PassOptions) -> tuple[Tensor | None, ...]:
        """Run the backend's pass and merge the shards."""
        with torch.autocast(hidden.device.type, enabled=False):
            stats = merge_stats(needed(options.backend).forward(options.problem(hidden, weight)), options.shard)
            # A row of which nothing is kept, or with logits below every number that counts, has no distribution.
            stats = replace(stats, sum_exp=stats.sum_exp.where(stats.row_max > NO_LOGIT / 2, torch.nan))
            log_sum = stats.sum_exp.log()
            logsumexp = stats.row_max + log_sum
            # From the maximum, not from logsumexp: the difference of near numbers is exact.
            logprob = stats.target - stats.row_max - log_sum if stats.target is not None else None
            gathered = None if stats.gathered is None else stats.gathered - stats.row_max[:, None] - log_sum[:, None]
            entropy = log_sum - stats.sum_exp_z / stats.sum_exp if stats.sum_exp_z is not None else None
            squares = stats.sum_exp_squared / stats.sum_exp**2 if stats.sum_exp_squared is not None else None
        ctx.options = options
        ctx.used_up = False
        # What was kept is saved like any tensor: a checkpoint drops it in its first forward and makes it again.
        ctx.save_for_backward(
            hidden,
            weight,
            stats.row_max,
            log_sum,
            logprob,
            entropy,
            squares,
            gathered,
            stats.topk_logits,
            stats.topk_columns,
            *stats.kept,
        )
        ctx.set_materialize_grads(False)
        moments = None if stats.moments is None else torch.cat([stats.moments, stats.row_max[None]])
        ctx.mark_non_differentiable(*(part for part in (stats.topk_columns, moments) if part is not None))
        return logprob, entropy, logsumexp, squares, gathered, stats.topk_logits, stats.topk_columns, moments

    @staticmethod
    def backward(ctx: Any, *output_grads: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        """Run the backend's backward for the gradients asked for, and reduce the one of hidden."""
        if torch.is_grad_enabled():
            raise RuntimeError("linear_logprob has no second derivative; call backward without create_graph=True.")
        if all(grad is None for grad in output_grads):
            return None, None, None
        hidden, weight, *saved = ctx.saved_tensors
        options: PassOptions = ctx.options
        kept = () if ctx.used_up else tuple(saved[8:])
        grads = replace(_row_grads(options, output_grads, *saved[:8]), kept=kept)
        ctx.used_up = True  # the backend works in place on what was kept; another backward makes it again
        problem, fused = options.problem(hidden, weight), options.main_grad_of
        run = partial(needed(options.backend).backward, problem, grads)
        return *options.gradients(problem, fused, ctx.needs_input_grad[:2], run), None


def _row_grads(
    options: PassOptions,
    output_grads: tuple[Tensor | None, ...],
    row_max: Tensor,
    log_sum: Tensor,
    logprob: Tensor | None,
    entropy: Tensor | None,
    squares: Tensor | None,
    gathered: Tensor | None,
    topk_logits: Tensor | None,
    topk_ids: Tensor | None,
) -> RowGrads:
    """The gradients of the outputs as coefficients of each row, and of chosen columns of it."""
    logprob_grad, entropy_grad, logsumexp_grad, squares_grad, gathered_grad, topk_grad, _, _ = output_grads
    softmax = torch.zeros_like(row_max) if logsumexp_grad is None else logsumexp_grad.clone()
    chosen: list[tuple[Tensor, Tensor, Tensor]] = []  # gradient, column and log-prob, each [rows, k]
    if logprob_grad is not None and logprob is not None and options.targets is not None:
        softmax -= logprob_grad
        chosen.append((logprob_grad[:, None], options.targets[:, None], logprob[:, None]))
    if gathered_grad is not None and gathered is not None and options.gather_columns is not None:
        softmax -= gathered_grad.sum(1)
        chosen.append((gathered_grad, options.gather_columns, gathered))
    if topk_grad is not None and topk_logits is not None and topk_ids is not None:
        chosen.append((topk_grad, topk_ids - options.shard.start, topk_logits - row_max[:, None] - log_sum[:, None]))
    if entropy_grad is not None and entropy is not None:
        softmax -= entropy_grad * entropy
    if squares_grad is not None and squares is not None:
        softmax -= 2 * squares_grad * squares
    merged: list[Tensor | None] = [torch.cat(parts, 1) for parts in zip(*chosen, strict=True)]
    coefficients, columns, logprobs = merged or [None] * 3
    return RowGrads(
        row_max=row_max,
        log_sum=log_sum,
        softmax_coefficient=softmax,
        entropy_coefficient=None if entropy_grad is None else -entropy_grad,
        squares_coefficient=None if squares_grad is None else 2 * squares_grad,
        target_coefficients=coefficients,
        target_columns=columns,
        target_logprobs=logprobs,
    )


def _spread_rows(part: Tensor | None, hidden: Tensor, rows: Tensor | None, tile_bytes: int) -> Tensor | None:
    """The gradient of all tokens from that of the computed rows."""
    if part is None or rows is None:
        return None if part is None else part.to(hidden.dtype)
    whole = torch.zeros_like(hidden)
    size = max(1, min(_SPREAD_ROWS, tile_bytes // max(1, hidden.shape[1] * hidden.itemsize)))
    for r in spans(len(rows), size):
        whole.index_copy_(0, rows[r], part[r].to(hidden.dtype))
    return whole
