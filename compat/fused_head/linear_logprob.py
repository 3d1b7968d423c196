"""The public functions: log-probs, entropy and more from hidden states and the LM-head weight."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.autograd import PassOptions, VocabPass, has_main_grad
from mcore_unpatch.compat.fused_head.problem import (
    bytes_to_keep,
    default_tile_bytes,
    math_dtype,
    needed,
    waiting_is_free,
)
from mcore_unpatch.compat.fused_head.settings import LogprobQuery, VocabQuery, check_tensors, check_vocabulary, takes
from mcore_unpatch.compat.fused_head.shards import Rows, locate_shard, select_rows, sort_labels
from mcore_unpatch.compat.fused_head.torch_backend import choose_backend


@dataclass(frozen=True)
class VocabOutput:
    """The results of one pass over the vocabulary, all differentiable except the ids; a masked row is 0 everywhere."""

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


@takes(LogprobQuery)
def linear_logprob(hidden: Tensor, weight: Tensor, query: LogprobQuery) -> tuple[Tensor, Tensor | None]:
    """Log-probs of `labels`, and the entropy, under `softmax(hidden @ weight.T * logit_scale / temperature)`.

    `[tokens, vocab]` is never built. Both results are float32 (float64 for a float64 weight), shaped like `labels`.

    Args:
        hidden: `[..., h]`; cast to the weight's dtype for the product, and its gradient cast back. Autocast has no
            effect: the product is in the weight's dtype.
        weight: `[vocab / tp, h]`, this rank's shard of the LM head. Shards may be unequal.
        labels: `[...]` global token ids, aligned with `hidden`.
        temperature: a number, or one per token `[...]`. Not differentiable: a tensor that requires grad raises.
            In a tensor on a GPU, 0, a negative number or NaN makes its row NaN, because raising would need a sync.
        logit_scale: multiplies the logits (MuP's output multiplier).
        mask: `[...]`; rows where it is 0 are not computed and return 0 without gradient. It selects rows; it is not
            a weight.
        mask_count: an upper bound on the mask's nonzero rows, the same on every rank of `tp_group`. With it, a mask
            needs no device sync. A bound that is too low raises on a CPU and makes every result NaN on a GPU.
        entropy: also return the entropy of every row that is not masked, whatever its label.
        vocab_size: rows of the LM head from this id on are padding and are left out.
        tp_group: the ranks that hold the shards, in order. Every rank passes the same rows and gets all results.
        reduce_hidden_grad: sum the gradient of `hidden` over `tp_group`, so that each rank has the full one. Turn it
            off if your own backward sums it, as the reduce-scatter of sequence parallelism does.
        fuse_main_grad: add the weight's gradient to `weight.main_grad` as Megatron's gradient accumulation fusion does.
        ignore_index: rows with this label return log-prob 0 without gradient. None: no label is ignored.
        out_of_vocab_grad: a label outside the vocabulary returns log-prob 0; its gradient is 0 with "zero", and that of
            `-logsumexp` with "legacy", as in other fused log-probs.
        backend: "auto" takes the fastest one that can run; if "triton" cannot run here, it warns once and uses "torch".
        tile_bytes: the size of the largest temporary: a tile with its casts and sums. It includes the copy of a tile's
            rows that a mask or another dtype requires; the triton backend gives that copy as much again, and at least
            128 rows. The rest does not grow with the vocabulary: a few numbers per row, and one float32 copy of the
            computed rows' hidden gradient if hidden is narrower or masked.
        keep_bytes: how many bytes of logits the forward may keep, so that the backward need not compute them again:
            two bytes per logit, for as many columns as fit. "auto": the free GPU memory minus a margin; the last bits
            of the gradients then depend on how much is free. None: the environment variable
            MCORE_UNPATCH_KEEP_BYTES, else 0. The first backward uses the kept logits up; a second one computes
            everything again. The torch backend keeps nothing.
        batch_invariant: a row's log-prob and entropy have the same bits whatever the other rows are. Gradients do not:
            they come from products over all rows.
    """
    if query.labels is None:
        raise TypeError("labels: expected a tensor, got None (use vocab_pass to call without labels)")
    out = run_pass(hidden, weight, query.widened(VocabQuery))
    return needed(out.logprobs), out.entropy


@takes(VocabQuery)
def vocab_pass(hidden: Tensor, weight: Tensor, query: VocabQuery) -> VocabOutput:
    """Everything one pass over the vocabulary can compute; takes the arguments of `linear_logprob`, and these.

    Args:
        topk: also return this many of the largest logits of each row, and their ids.
        token_ids: `[..., k]` global token ids; also return their log-probs. An id outside the vocabulary returns 0
            without gradient; an id may occur several times in a row.
        sum_pi_squared: also return the sum of the squared probabilities of each row.
        keep_mask: `[..., vocab / tp]` booleans for this rank's tokens. A token where it is False is left out of every
            result of its row, as if its logit were minus infinity (the tokens that top-p or top-k sampling left out).
            The label is never left out. A row that keeps nothing is NaN. Torch backend only.
        logit_stats: also return the smallest, largest and mean logit and the norm of each row. Torch backend only.
    """
    return run_pass(hidden, weight, query)


def run_pass(hidden: Tensor, weight: Tensor, query: VocabQuery) -> VocabOutput:
    """Check the tensors, find out which rows of which shard are asked for, and run the pass."""
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
        keep_bytes=bytes_to_keep(query.keep_bytes, hidden, weight) if will_have_grad else 0,
        keep_mask=None if query.keep_mask is None else query.keep_mask.reshape(shape.numel(), len(weight)),
        **where,
    )
    tokens = hidden.reshape(shape.numel(), hidden.shape[-1])
    results = VocabPass.apply(tokens, weight, options)  # type: ignore[no-untyped-call]
    logprobs, level, logsumexp, squares, topk_logits, topk_ids, moments = results
    logprobs = logsumexp.new_zeros(taken.count, 0) if logprobs is None else logprobs
    own = None if labels is None else labels.settle(logprobs[:, 0], logsumexp, query.out_of_vocab_grad)
    others = None if ids is None else logprobs[:, 0 if labels is None else 1 :].where(ids.known, 0)
    stats: dict[str, Tensor] = {}
    if moments is not None:
        least, total, sum_of_squares, count, most = moments
        stats = {"logit_min": least, "logit_max": most, "logit_mean": total / count}
        stats["logit_norm"] = sum_of_squares.sqrt()
    out = VocabOutput(own, level, logsumexp, topk_logits, topk_ids, others, squares, **stats)
    return out.each(taken.spread)


def located(hidden: Tensor, weight: Tensor, query: LogprobQuery, topk: int = 0) -> tuple[Rows, dict[str, Any]]:
    """Which rows are computed, and the part of `PassOptions` that every pass has: the shard, and where gradients go."""
    will_have_grad = torch.is_grad_enabled() and weight.requires_grad
    if query.fuse_main_grad and will_have_grad and not has_main_grad(weight):
        raise ValueError(
            "fuse_main_grad: expected a weight with main_grad (a parameter under Megatron's DDP or FSDP), got none"
        )
    shape, group = hidden.shape[:-1], query.tp_group
    chosen = None if query.mask is None else query.mask.reshape(-1) != 0
    shard, live_count = locate_shard(
        weight,
        shape.numel() if chosen is None else chosen.count_nonzero(),
        group if group is not None and group.size() > 1 else None,
        on_host=waiting_is_free(hidden) or (chosen is not None and query.mask_count is None),
    )
    sound = check_vocabulary(shard.total, query.vocab_size, topk)
    below = len(weight) if query.vocab_size is None else query.vocab_size - shard.start  # this shard's rows of tokens
    rows = select_rows(shape, chosen, live_count, query.mask_count, sound)
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
    bad = ~(per_row.isfinite() & (per_row > 0))
    if not waiting_is_free(per_row):  # raising would mean waiting: a row with such a temperature becomes NaN
        per_row = per_row.masked_fill(bad, torch.nan)
    elif bad.any():
        got = f"{per_row[bad][0].item()} at {int(bad.sum())} rows"
        raise ValueError(f"temperature: expected finite numbers above 0, got {got}")
    return (logit_scale / per_row)[:, None]
