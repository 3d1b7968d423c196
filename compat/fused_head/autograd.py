"""The one autograd function: statistics of the vocabulary per row, and their gradients.

The weight's goes to a new `.grad`, or to `main_grad`, the buffer that Megatron's optimizer reads: then
`grad_added_to_main_grad` keeps the hook of the data-parallel wrapper from adding `.grad` again, but on a tied weight
(`zero_out_wgrad`), where ours must be zeros. Megatron FSDP lends the buffer, with nothing worth keeping in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .problem import NO_LOGIT, Backward, Problem, RowGrads, VocabShard, WeightGradBuffer, merge_stats, needed
from .torch_backend import TorchBackend, spans

# Rows whose gradient is rounded at a time where it goes back to all tokens: all at once would be another copy of it.
_SPREAD_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class PassOptions:
    """How one pass runs, and where its results go."""

    problem: Callable[..., Problem]  # of hidden states and weight; its own tensors are copies, safe from later writes
    shard: VocabShard
    reduce_hidden_grad: bool
    main_grad_of: Tensor | None  # the parameter itself: only it carries `main_grad`
    backend: TorchBackend = field(default_factory=TorchBackend)

    def gradients(
        self, problem: Problem, main_grad_of: Tensor | None, needed: Sequence[bool], backward: Backward
    ) -> tuple[Tensor | None, Tensor | None]:
        """Those of hidden states and weight, as `needed`, which `backward` adds up as `TorchBackend.backward` does."""
        (need_hidden, need_weight), hidden, weight = needed, problem.hidden, problem.weight
        with torch.autocast(hidden.device.type, enabled=False):
            sink = None if main_grad_of is None or not need_weight else main_grad(main_grad_of)
            if need_weight and sink is None:
                sink = WeightGradBuffer(torch.empty_like(weight, memory_format=torch.contiguous_format), False)
            group = self.shard.group if self.reduce_hidden_grad else None
            sums: list[tuple[Tensor, dist.Work | None]] = []

            def sum_shards(part: Tensor) -> None:  # in place, beside what is still computed
                summed = group is not None and part.numel()
                sums.append((part, dist.all_reduce(part, group=group, async_op=True) if summed else None))

            backward(sum_shards if need_hidden else None, sink)
            for _, work in sums:
                if work is not None:
                    work.wait()  # on a GPU the stream waits, not the host
            part = sums[0][0] if sums else None
        weight_grad = None if sink is None else sink.buffer
        if sink is not None and main_grad_of is not None:
            weight_grad = announce_main_grad(main_grad_of)
        if part is None or problem.rows is None:
            return None if part is None else part.to(hidden.dtype), weight_grad
        whole = torch.zeros_like(hidden)  # of all tokens, from that of the computed rows
        size = max(1, min(_SPREAD_ROWS, problem.tile_bytes // max(1, hidden.shape[1] * hidden.itemsize)))
        for r in spans(len(problem.rows), size):
            whole.index_copy_(0, problem.rows[r], part[r].to(hidden.dtype))
        return whole, weight_grad


class VocabPass(torch.autograd.Function):
    """`(hidden [tokens, h], weight)` to the statistics of the rows; products are in the weight's dtype both ways."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, options: PassOptions) -> tuple[Tensor | None, ...]:
        """Run the pass, and save what its backward needs."""
        results, rows, kept = row_results(hidden, weight, options)
        ctx.options = options
        ctx.used_up = False
        # What was kept is saved like any tensor: a checkpoint drops it in its first forward and makes it again.
        ctx.save_for_backward(hidden, weight, *rows, *kept)
        ctx.set_materialize_grads(False)
        if results[-1] is not None:
            ctx.mark_non_differentiable(results[-1])
        return results

    @staticmethod
    def backward(ctx: Any, *output_grads: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        """Run the backend's backward for the gradients asked for, and reduce the one of hidden."""
        if torch.is_grad_enabled():
            raise RuntimeError("linear_logprob has no second derivative; call backward without create_graph=True.")
        if all(grad is None for grad in output_grads):
            return None, None, None
        hidden, weight, *saved = ctx.saved_tensors
        kept = () if ctx.used_up else tuple(saved[7:])
        ctx.used_up = True  # the backend works in place on what was kept; another backward makes it again
        needed = ctx.needs_input_grad[:2]
        return *input_grads(hidden, weight, ctx.options, (saved[:7], kept), output_grads, needed), None


Rows = Sequence[Tensor | None]  # maxima, log_sum, log-probs, entropy, squares, top-k logits and ids


def row_results(
    hidden: Tensor, weight: Tensor, options: PassOptions
) -> tuple[tuple[Tensor | None, ...], Rows, tuple[Tensor, ...]]:
    """What `VocabPass` returns, what its backward needs of every row, and what the backend has kept for it."""
    with torch.autocast(hidden.device.type, enabled=False):
        stats = options.backend.forward(options.problem(hidden, weight))
        if options.shard.group is not None:
            stats = merge_stats(stats, options.shard)
        # A row with logits below every number that counts has no distribution.
        stats = replace(stats, sum_exp=stats.sum_exp.where(stats.row_max > NO_LOGIT / 2, torch.nan))
        log_sum = stats.sum_exp.log()
        logsumexp = stats.row_max + log_sum
        # From the maximum, not from logsumexp: the difference of near numbers is exact.
        logprobs = None if stats.chosen is None else stats.chosen - stats.row_max[:, None] - log_sum[:, None]
        entropy = log_sum - stats.sum_exp_z / stats.sum_exp if stats.sum_exp_z is not None else None
        squares = stats.sum_exp_squared / stats.sum_exp**2 if stats.sum_exp_squared is not None else None
    top = (stats.topk_logits, stats.topk_columns)
    rows = (stats.row_max, log_sum, logprobs, entropy, squares, *top)
    return (logprobs, entropy, logsumexp, squares, *top), rows, stats.kept


def input_grads(
    hidden: Tensor,
    weight: Tensor,
    options: PassOptions,
    saved: tuple[Rows, tuple[Tensor, ...]],
    output_grads: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of hidden states and weight, as `needed`, from those of the results of `row_results`."""
    problem = options.problem(hidden, weight)
    grads = _row_grads(problem.chosen, options.shard.start, output_grads, *saved)
    run = partial(options.backend.backward, problem, grads)
    return options.gradients(problem, options.main_grad_of, needed, run)


def _row_grads(
    columns: Tensor | None,
    start: int,
    output_grads: Sequence[Tensor | None],
    saved: Sequence[Any],
    kept: tuple[Tensor, ...],
) -> RowGrads:
    """The gradients of the outputs as coefficients of each row, and of chosen columns of it."""
    row_max, log_sum, logprobs, entropy, squares, topk_logits, topk_ids = saved
    logprobs_grad, entropy_grad, logsumexp_grad, squares_grad, topk_grad, _ = output_grads
    softmax = torch.zeros_like(row_max) if logsumexp_grad is None else logsumexp_grad.clone()
    chosen: list[tuple[Tensor, Tensor, Tensor]] = []  # gradient, column and log-prob, each [rows, k]
    if logprobs_grad is not None:
        softmax -= logprobs_grad.sum(1)
        chosen.append((logprobs_grad, needed(columns), logprobs))
    if topk_grad is not None:
        chosen.append((topk_grad, topk_ids - start, topk_logits - row_max[:, None] - log_sum[:, None]))
    if entropy_grad is not None:
        softmax -= entropy_grad * entropy
    if squares_grad is not None:
        softmax -= 2 * squares_grad * squares
    merged: list[Tensor | None] = [torch.cat(parts, 1) for parts in zip(*chosen, strict=True)]
    target_coefficients, target_columns, target_logprobs = merged or [None] * 3
    return RowGrads(
        row_max=row_max,
        log_sum=log_sum,
        softmax_coefficient=softmax,
        entropy_coefficient=None if entropy_grad is None else -entropy_grad,
        squares_coefficient=None if squares_grad is None else 2 * squares_grad,
        target_coefficients=target_coefficients,
        target_columns=target_columns,
        target_logprobs=target_logprobs,
        kept=kept,
    )


def has_main_grad(weight: Any) -> bool:
    """Whether a gradient can be accumulated into this weight's own buffer."""
    return getattr(weight, "main_grad", None) is not None or hasattr(weight, "__fsdp_param__")


def main_grad(weight: Any) -> WeightGradBuffer:
    """The weight's `main_grad`: added to, except the first time in a backward pass of Megatron FSDP."""
    if not hasattr(weight, "__fsdp_param__"):
        return WeightGradBuffer(weight.main_grad, accumulate=True)
    weight.main_grad = weight.get_main_grad()
    return WeightGradBuffer(weight.main_grad, accumulate=bool(getattr(weight, "grad_added_to_main_grad", False)))


def into_main_grad(weight: Tensor) -> Tensor:
    """The weight for code that multiplies by it directly: its gradient is added to `main_grad`, not to `.grad`."""
    if not (torch.is_grad_enabled() and weight.requires_grad and has_main_grad(weight)):
        return weight

    def add(grad: Tensor) -> Tensor | None:
        target = main_grad(weight)  # of the parameter itself: only it carries `main_grad`
        target.buffer.add_(grad) if target.accumulate else target.buffer.copy_(grad)
        return announce_main_grad(weight)

    return with_gradient(weight, lambda same: same.view_as(same), add)


def with_gradient(value: Tensor, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Any]) -> Tensor:
    """`forward(value)`, whose gradient goes to `value` through `backward`."""
    result: Tensor = _WithGradient.apply(value, forward, backward)  # type: ignore[no-untyped-call]
    return result


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, forward: Any, backward: Any) -> Any:
        ctx.run = backward
        return forward(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None]:
        return ctx.run(grads[0]), None, None


def announce_main_grad(weight: Any) -> Tensor | None:
    """Mark `main_grad` as written; return the placeholder for `.grad` that makes the wrapper's hooks run."""
    if not hasattr(weight, "grad_added_to_main_grad"):
        return None
    weight.grad_added_to_main_grad = True
    return torch.zeros_like(weight) if getattr(weight, "zero_out_wgrad", False) else torch.empty_like(weight)
