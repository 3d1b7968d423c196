"""The public functions: log-probs, entropy and more from hidden states and the LM-head weight."""

from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.autograd import VocabOptions, VocabPass
from mcore_unpatch.compat.fused_head.backends import choose_backend
from mcore_unpatch.compat.fused_head.checks import (
    check_count,
    check_keep_mask,
    check_mask_count,
    check_number,
    check_options,
    check_positive,
    check_tensors,
    check_vocabulary,
    waiting_is_free,
)
from mcore_unpatch.compat.fused_head.memory import bytes_to_keep, default_tile_bytes
from mcore_unpatch.compat.fused_head.problem import math_dtype
from mcore_unpatch.compat.fused_head.rows import Rows, select_rows, sort_labels
from mcore_unpatch.compat.fused_head.shards import VocabShard, locate_shard


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


@dataclass(frozen=True, kw_only=True)
class PassSettings:
    """The options of `linear_logprob` that a processor takes and passes on as they are."""

    vocab_size: int | None = None
    ignore_index: int | None = -100
    out_of_vocab_grad: Literal["zero", "legacy"] = "zero"
    backend: Literal["auto", "torch", "triton"] = "auto"
    tile_bytes: int | None = None
    keep_bytes: int | Literal["auto"] | None = None
    batch_invariant: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """The options as keywords."""
        return {f.name: getattr(self, f.name) for f in fields(PassSettings)}


def linear_logprob(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    logit_scale: float = 1.0,
    mask: Tensor | None = None,
    mask_count: int | None = None,
    entropy: bool = False,
    vocab_size: int | None = None,
    tp_group: ProcessGroup | None = None,
    reduce_hidden_grad: bool = True,
    fuse_main_grad: bool = False,
    ignore_index: int | None = -100,
    out_of_vocab_grad: Literal["zero", "legacy"] = "zero",
    backend: Literal["auto", "torch", "triton"] = "auto",
    tile_bytes: int | None = None,
    keep_bytes: int | Literal["auto"] | None = None,
    batch_invariant: bool = False,
) -> tuple[Tensor, Tensor | None]:
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
    out = vocab_pass(
        hidden,
        weight,
        labels,
        temperature=temperature,
        logit_scale=logit_scale,
        mask=mask,
        mask_count=mask_count,
        entropy=entropy,
        vocab_size=vocab_size,
        tp_group=tp_group,
        reduce_hidden_grad=reduce_hidden_grad,
        fuse_main_grad=fuse_main_grad,
        ignore_index=ignore_index,
        out_of_vocab_grad=out_of_vocab_grad,
        backend=backend,
        tile_bytes=tile_bytes,
        keep_bytes=keep_bytes,
        batch_invariant=batch_invariant,
    )
    if out.logprobs is None:
        raise TypeError("labels: expected a tensor, got None (use vocab_pass to call without labels)")
    return out.logprobs, out.entropy


def vocab_pass(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor | None = None,
    *,
    temperature: float | Tensor = 1.0,
    logit_scale: float = 1.0,
    mask: Tensor | None = None,
    mask_count: int | None = None,
    entropy: bool = False,
    topk: int = 0,
    token_ids: Tensor | None = None,
    sum_pi_squared: bool = False,
    keep_mask: Tensor | None = None,
    logit_stats: bool = False,
    vocab_size: int | None = None,
    tp_group: ProcessGroup | None = None,
    reduce_hidden_grad: bool = True,
    fuse_main_grad: bool = False,
    ignore_index: int | None = -100,
    out_of_vocab_grad: Literal["zero", "legacy"] = "zero",
    backend: Literal["auto", "torch", "triton"] = "auto",
    tile_bytes: int | None = None,
    keep_bytes: int | Literal["auto"] | None = None,
    batch_invariant: bool = False,
) -> VocabOutput:
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
    check_tensors(hidden, weight, labels, mask, temperature, token_ids)
    check_options(weight, backend, out_of_vocab_grad, ignore_index, tp_group, fuse_main_grad)
    check_number("logit_scale", logit_scale, positive=False)
    shape = hidden.shape[:-1]
    check_keep_mask(keep_mask, hidden, weight)
    check_count("topk", topk, 0)
    check_count("tile_bytes", tile_bytes, 1)

    shard, rows = locate_rows(hidden, weight, mask, mask_count, vocab_size, tp_group, topk)
    sorted_labels = None
    if labels is not None:
        sorted_labels = sort_labels(rows.take(labels), shard, vocab_size, ignore_index)
    ids = None
    if token_ids is not None and token_ids.shape[-1]:
        ids = sort_labels(rows.take(token_ids), shard, vocab_size, ignore_index=None)
    will_have_grad = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    only_torch = "keep_mask" if keep_mask is not None else "logit_stats" if logit_stats else ""
    options = VocabOptions(
        backend=choose_backend(backend, hidden.device, only_torch),
        shard=shard,
        rows=rows.index,
        targets=sorted_labels.targets if sorted_labels is not None else None,
        gather_columns=ids.targets if ids is not None else None,
        scale=row_scale(rows, temperature, logit_scale, math_dtype(weight)),
        columns=shard.columns_below(vocab_size, len(weight)),
        entropy=entropy,
        squares=sum_pi_squared,
        topk=topk,
        tile_bytes=tile_bytes or default_tile_bytes(hidden.device.type),
        keep_bytes=bytes_to_keep(keep_bytes, hidden, weight) if will_have_grad else 0,
        batch_invariant=batch_invariant,
        reduce_hidden_grad=reduce_hidden_grad,
        main_grad_of=weight if fuse_main_grad else None,
        keep_mask=None if keep_mask is None else keep_mask.reshape(shape.numel(), len(weight)),
        moments=logit_stats,
    )
    tokens = hidden.reshape(shape.numel(), hidden.shape[-1])
    found = VocabPass.apply(tokens, weight, options)  # type: ignore[no-untyped-call]
    logprob, level, logsumexp, squares, gathered, topk_logits, topk_ids, moments = found
    if sorted_labels is not None:
        logprob = sorted_labels.settle(logprob, logsumexp, out_of_vocab_grad)
    if token_ids is not None:
        gathered = logsumexp.new_zeros(rows.count, 0) if ids is None else gathered.where(ids.known, 0)
    return VocabOutput(
        logprobs=rows.spread(logprob),
        entropy=rows.spread(level),
        logsumexp=rows.spread(logsumexp),
        topk_logits=rows.spread(topk_logits),
        topk_ids=rows.spread(topk_ids),
        token_logprobs=rows.spread(gathered),
        sum_pi_squared=rows.spread(squares),
        **({} if moments is None else _logit_stats(rows, *moments)),
    )


def _logit_stats(
    rows: Rows, least: Tensor, total: Tensor, squares: Tensor, count: Tensor, most: Tensor
) -> dict[str, Tensor]:
    found = {"logit_min": least, "logit_max": most, "logit_mean": total / count, "logit_norm": squares.sqrt()}
    return {name: rows.spread(value) for name, value in found.items()}


def locate_rows(
    hidden: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    mask_count: int | None,
    vocab_size: int | None,
    tp_group: ProcessGroup | None,
    topk: int = 0,
) -> tuple[VocabShard, Rows]:
    """Where this rank's shard lies in the vocabulary, and which rows are computed."""
    check_mask_count(mask_count, mask)
    check_count("vocab_size", vocab_size, 1)
    shape = hidden.shape[:-1]
    chosen = None if mask is None else mask.reshape(-1) != 0
    shard, live_count = locate_shard(
        weight,
        shape.numel() if chosen is None else chosen.count_nonzero(),
        tp_group if tp_group is not None and tp_group.size() > 1 else None,
        on_host=waiting_is_free(hidden) or (chosen is not None and mask_count is None),
    )
    return shard, select_rows(shape, chosen, live_count, mask_count, check_vocabulary(shard.total, vocab_size, topk))


def row_scale(rows: Rows, temperature: float | Tensor, logit_scale: float, dtype: torch.dtype) -> float | Tensor:
    """The factor of the raw product: a number, or one per row `[rows, 1]`."""
    if not isinstance(temperature, Tensor):
        return logit_scale / temperature
    per_row = rows.take(temperature.expand(rows.shape)).to(dtype)
    if waiting_is_free(per_row):
        check_positive("temperature", per_row)
    else:  # raising would mean waiting: a row with such a temperature becomes NaN
        per_row = per_row.where((per_row > 0) & per_row.isfinite(), torch.nan)
    return (logit_scale / per_row)[:, None]
