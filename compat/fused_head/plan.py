"""One pass over the vocabulary: which rows of which shard are computed, and what becomes of the results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.autograd import PassOptions, VocabPass, has_main_grad
from mcore_unpatch.compat.fused_head.problem import (
    being_captured,
    default_tile_bytes,
    math_dtype,
    waiting_is_free,
)
from mcore_unpatch.compat.fused_head.settings import LogprobQuery, VocabQuery, check_tensors, check_vocabulary
from mcore_unpatch.compat.fused_head.shards import (
    LabelRows,
    Rows,
    checks_ranks,
    locate_shard,
    select_rows,
    sort_labels,
)
from mcore_unpatch.compat.fused_head.torch_backend import choose_backend


@dataclass(frozen=True)
class VocabOutput:
    """The results of one pass over the vocabulary, all differentiable except the ids; a row left out is 0 everywhere.

    Left out are the rows that the mask does not keep, and those whose label is `ignore_index`.
    """

    logprobs: Tensor | None  # [...] None without labels
    entropy: Tensor | None  # [...] None unless asked for
    logsumexp: Tensor  # [...] of the scaled logits: `topk_logits - logsumexp[..., None]` are log-probs
    topk_logits: Tensor | None  # [..., k] scaled logits, descending
    topk_ids: Tensor | None  # [..., k] global token ids
    token_logprobs: Tensor | None = None  # [..., k] of `token_ids`
    sum_pi_squared: Tensor | None = None  # [...] sum of the squared probabilities
    logit_min: Tensor | None = None  # [...] of the scaled logits of each token; these four without gradient
    logit_max: Tensor | None = None
    logit_mean: Tensor | None = None
    logit_norm: Tensor | None = None  # the root of the sum of squares

    def each(self, change: Callable[[Tensor], Tensor]) -> "VocabOutput":
        """The same after `change` of every result that is there."""
        results = {name: None if value is None else change(value) for name, value in vars(self).items()}
        return VocabOutput(**results)  # type: ignore[arg-type]


def run_pass(hidden: Tensor, weight: Tensor, query: VocabQuery) -> VocabOutput:
    """Check the tensors, find out which rows of which shard are asked for, and run the pass."""
    plan = plan_pass(hidden, weight, query)
    return plan.output(VocabPass.apply(plan.tokens, weight, plan.options))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class PassPlan:
    """One pass before it runs: the rows it computes, their labels, and how its results become those of all tokens."""

    tokens: Tensor  # [tokens, h]
    rows: Rows
    labels: LabelRows | None
    ids: LabelRows | None
    options: PassOptions
    out_of_vocab_grad: str

    def output(self, results: Sequence[Tensor | None]) -> VocabOutput:
        """The results of `VocabPass` in the shape of the labels."""
        logprobs, level, logsumexp, squares, topk_logits, topk_ids, moments = results
        assert logsumexp is not None
        logprobs = logsumexp.new_zeros(self.rows.count, 0) if logprobs is None else logprobs
        own = None if self.labels is None else self.labels.settle(logprobs[:, 0], logsumexp, self.out_of_vocab_grad)
        others = None if self.ids is None else logprobs[:, 0 if own is None else 1 :].where(self.ids.known, 0)
        stats: dict[str, Tensor] = {}
        if moments is not None:
            least, total, sum_of_squares, count, most = moments
            stats = {"logit_min": least, "logit_max": most, "logit_mean": total / count}
            stats["logit_norm"] = sum_of_squares.sqrt()
        out = VocabOutput(own, level, logsumexp, topk_logits, topk_ids, others, squares, **stats)
        return out.each(self.rows.spread)


def plan_pass(hidden: Tensor, weight: Tensor, query: VocabQuery) -> PassPlan:
    """Check the tensors, and find out which rows of which shard are asked for."""
    rows = {name: getattr(query, name) for name in ("labels", "mask", "token_ids", "keep_mask")}
    check_tensors(hidden, weight, query.temperature, **rows)

    shape, vocab_size = hidden.shape[:-1], query.vocab_size
    taken, where = located(hidden, weight, query, query.topk)
    shard = where["shard"]
    labels = ids = None
    if query.labels is not None:
        labels = sort_labels(taken.take(query.labels), shard, vocab_size, query.ignore_index)
    if query.token_ids is not None:
        ids = sort_labels(taken.take(query.token_ids), shard, vocab_size, ignore_index=None)
    chosen = ([] if labels is None else [labels.targets[:, None]]) + ([] if ids is None else [ids.targets])
    will_have_grad = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    only_torch = "keep_mask" if query.keep_mask is not None else "logit_stats" if query.logit_stats else ""
    options = query.widened(
        PassOptions,
        backend=choose_backend(query.backend, hidden.device, only_torch),
        chosen=torch.cat(chosen, 1) if sum(part.shape[1] for part in chosen) else None,
        labelled=labels is not None,
        scale=row_scale(taken, query.temperature, query.logit_scale, math_dtype(weight)),
        keep_bytes=query.keep_bytes if will_have_grad else 0,
        keep_mask=None if query.keep_mask is None else query.keep_mask.reshape(shape.numel(), len(weight)),
        **where,
    )
    tokens = hidden.reshape(shape.numel(), hidden.shape[-1])
    return PassPlan(tokens, taken, labels, ids, options, query.out_of_vocab_grad)


def located(hidden: Tensor, weight: Tensor, query: LogprobQuery, topk: int = 0) -> tuple[Rows, dict[str, Any]]:
    """Which rows are computed, and the part of `PassOptions` that every pass has: the shard, and where gradients go."""
    will_have_grad = torch.is_grad_enabled() and weight.requires_grad
    if query.fuse_main_grad and will_have_grad and not has_main_grad(weight):
        raise ValueError(
            "fuse_main_grad: expected a weight with main_grad (a parameter under Megatron's DDP or FSDP), got none"
        )
    shape, group = hidden.shape[:-1], query.tp_group
    wanted = query.rows_wanted()
    group = group if group is not None and group.size() > 1 else None
    must_wait = (wanted is not None and query.max_rows is None) or checks_ranks(group)
    shard, live_count = locate_shard(
        weight,
        (shape.numel(), shape.numel() if wanted is None else wanted.count_nonzero(), query.max_rows),
        group,
        on_host=waiting_is_free(hidden) or (must_wait and not being_captured(hidden)),
    )
    sound = check_vocabulary(shard.total, query.vocab_size, topk)
    below = len(weight) if query.vocab_size is None else query.vocab_size - shard.start  # this shard's rows of tokens
    rows = select_rows(shape, wanted, live_count, query.max_rows, sound)
    return rows, {
        "shard": shard,
        "rows": rows.index,
        "columns": below.clamp(0, len(weight)) if isinstance(below, Tensor) else max(0, min(below, len(weight))),
        "tile_bytes": query.tile_bytes or default_tile_bytes(hidden.device.type),
        "reduce_hidden_grad": query.reduce_hidden_grad,
        "main_grad_of": weight if query.fuse_main_grad else None,
    }


def row_scale(rows: Rows, temperature: float | Tensor, logit_scale: float, dtype: torch.dtype) -> float | Tensor:
    """The factor of the raw product: a number, or one per row `[rows, 1]`."""
    if not isinstance(temperature, Tensor):
        return logit_scale / temperature
    per_row = rows.take(temperature.expand(rows.shape)).to(dtype)
    if rows.live is not None:  # of the other rows nobody looks at it
        per_row = per_row.where(rows.live, 1)
    bad = ~(per_row.isfinite() & (per_row > 0))
    if not waiting_is_free(per_row):  # raising would mean waiting: a row with such a temperature becomes NaN
        per_row = per_row.masked_fill(bad, torch.nan)
    elif bad.any():
        got = f"{per_row[bad][0].item()} at {int(bad.sum())} rows"
        raise ValueError(f"temperature: expected finite numbers above 0, got {got}")
    return (logit_scale / per_row)[:, None]
