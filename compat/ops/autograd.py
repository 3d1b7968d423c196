"""The one autograd function: statistics of the vocabulary per row, and their gradients."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mcore_unpatch.compat.ops.seam import Backend, Problem, RowGrads
from mcore_unpatch.compat.ops.shards import ShardSum, VocabShard, merge_stats
from mcore_unpatch.compat.ops.tile_plan import spans
from mcore_unpatch.compat.ops.weight_grad import announce_main_grad, fresh_grad, main_grad

# Rows whose gradient is rounded at a time where it goes back to all tokens: all at once would be another copy of it.
_SPREAD_ROWS = 4096


@dataclass(frozen=True)
class PassOptions:
    """All of a call but its two differentiable tensors. Its tensors are private copies, safe from later writes."""

    backend: Backend
    shard: VocabShard
    rows: Tensor | None
    targets: Tensor | None
    scale: float | Tensor
    columns: int | Tensor
    entropy: bool
    topk: int
    tile_bytes: int
    reduce_hidden_grad: bool
    main_grad_of: Tensor | None  # the parameter itself: only it carries `main_grad`

    def problem(self, hidden: Tensor, weight: Tensor) -> Problem:
        """The part of the call a backend sees."""
        return Problem(
            hidden, weight, self.rows, self.targets, self.scale, self.columns, self.entropy, self.topk, self.tile_bytes
        )


class VocabPass(torch.autograd.Function):
    """`(hidden [tokens, h], weight) -> logprob, entropy, logsumexp [rows], top-k logits and ids [rows, k]`.

    Autocast is off inside: the product's dtype is the weight's, in the forward and in the backward.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, options: PassOptions) -> tuple[Tensor | None, ...]:
        """Run the backend's pass and merge the shards."""
        with torch.autocast(hidden.device.type, enabled=False):
            stats = merge_stats(options.backend.forward(options.problem(hidden, weight)), options.shard)
            log_total = stats.total.log()
            logsumexp = stats.peak + log_total
            # From the peak, not from logsumexp: the difference of near numbers is exact.
            logprob = stats.target - stats.peak - log_total if stats.target is not None else None
            entropy = log_total - stats.drift / stats.total if stats.drift is not None else None
        ctx.options = options
        ctx.save_for_backward(hidden, weight, stats.peak, log_total, entropy, stats.topk_columns)
        ctx.set_materialize_grads(False)
        if stats.topk_columns is not None:
            ctx.mark_non_differentiable(stats.topk_columns)
        return logprob, entropy, logsumexp, stats.topk_logits, stats.topk_columns

    @staticmethod
    def backward(ctx: Any, *output_grads: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        """Run the backend's backward for the gradients asked for, and reduce the one of hidden."""
        if torch.is_grad_enabled():
            raise RuntimeError("linear_logprob has no second derivative: call backward without create_graph=True")
        hidden, weight, peak, log_total, entropy, topk_ids = ctx.saved_tensors
        options: PassOptions = ctx.options
        need_hidden, need_weight, _ = ctx.needs_input_grad
        logprob_grad, entropy_grad, logsumexp_grad, topk_grad, _ = output_grads
        if all(grad is None for grad in (logprob_grad, entropy_grad, logsumexp_grad, topk_grad)):
            return None, None, None
        softmax = torch.zeros_like(peak)
        softmax = softmax if logprob_grad is None else softmax + logprob_grad
        softmax = softmax if logsumexp_grad is None else softmax - logsumexp_grad
        grads = RowGrads(
            peak=peak,
            log_total=log_total,
            softmax=softmax,
            target=logprob_grad,
            entropy=entropy_grad,
            level=entropy,
            topk=topk_grad,
            topk_columns=topk_ids - options.shard.start if topk_grad is not None else None,
        )
        fused = options.main_grad_of
        with torch.autocast(hidden.device.type, enabled=False):
            sink = None if not need_weight else fresh_grad(weight) if fused is None else main_grad(fused)
            hidden_sum = ShardSum(options.shard.group if options.reduce_hidden_grad else None)
            options.backend.backward(
                options.problem(hidden, weight), grads, hidden_sum.start if need_hidden else None, sink
            )
            part = hidden_sum.wait() if need_hidden else None
        weight_grad = None if sink is None else sink.buffer if fused is None else announce_main_grad(fused)
        return _spread_rows(part, hidden, options.rows, options.tile_bytes), weight_grad, None


def _spread_rows(part: Tensor | None, hidden: Tensor, rows: Tensor | None, tile_bytes: int) -> Tensor | None:
    """The gradient of all tokens from that of the computed rows."""
    if part is None or rows is None:
        return None if part is None else part.to(hidden.dtype)
    whole = torch.zeros_like(hidden)
    size = max(1, min(_SPREAD_ROWS, tile_bytes // max(1, hidden.shape[1] * hidden.itemsize)))
    for r in spans(len(rows), size):
        whole.index_copy_(0, rows[r], part[r].to(hidden.dtype))
    return whole
