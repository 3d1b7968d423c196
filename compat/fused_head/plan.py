"""One pass over the vocabulary: which rows of which shard are computed, and what becomes of the results.

Collectives per call: one gather of row statistics, one more for top-k; one all-reduce in the backward. On a CPU one
more at the beginning, so that ranks with other rows are told.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from .autograd import PassOptions, VocabPass, has_main_grad
from .problem import Problem, VocabShard, gather
from .settings import DEFAULT_TILE_BYTES, LogprobQuery, check_tensors, check_vocabulary, math_dtype, waiting_is_free
from .torch_backend import choose_backend


@dataclass(frozen=True)
class VocabOutput:
    """The results of one pass, all differentiable except the ids; 0 in rows that mask or `ignore_index` leave out."""

    logprobs: Tensor | None  # [...] None without labels
    entropy: Tensor | None  # [...] None unless asked for
    logsumexp: Tensor  # [...] of the scaled logits: `topk_logits - logsumexp[..., None]` are log-probs
    topk_logits: Tensor | None  # [..., k] scaled logits, descending
    topk_ids: Tensor | None  # [..., k] global token ids
    token_logprobs: Tensor | None = None  # [..., k] of `token_ids`
    sum_pi_squared: Tensor | None = None  # [...] sum of the squared probabilities

    def transposed(self) -> "VocabOutput":
        """The same of `[s, b, ...]` as `[b, s, ...]`."""
        results = [None if one is None else one.transpose(0, 1).contiguous() for one in vars(self).values()]
        return VocabOutput(*results)  # type: ignore[arg-type]


def run_pass(hidden: Tensor, weight: Tensor, query: LogprobQuery) -> VocabOutput:
    """Check the tensors, find out which rows of which shard are asked for, and run the pass."""
    plan = plan_pass(hidden, weight, query)
    return plan.output(VocabPass.apply(plan.tokens, weight, plan.options))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class PassPlan:
    """One pass before it runs: the rows it computes, their labels, and how its results become those of all tokens."""

    tokens: Tensor  # [tokens, h]
    rows: "Rows"
    labels: "LabelRows | None"
    ids: "LabelRows | None"
    options: PassOptions
    out_of_vocab_grad: str

    def output(self, results: Sequence[Tensor | None]) -> VocabOutput:
        """The results of `VocabPass` in the shape of the labels."""
        logprobs, level, logsumexp, squares, topk_logits, topk_ids = results
        assert logsumexp is not None
        logprobs = logsumexp.new_zeros(self.rows.count, 0) if logprobs is None else logprobs
        own = None if self.labels is None else self.labels.settle(logprobs[:, 0], logsumexp, self.out_of_vocab_grad)
        others = None if self.ids is None else logprobs[:, 0 if own is None else 1 :].where(self.ids.known, 0)
        spread = self.rows.spread(own, level, logsumexp, topk_logits, topk_ids, others, squares)
        return VocabOutput(*spread)  # type: ignore[arg-type]


def plan_pass(hidden: Tensor, weight: Tensor, query: LogprobQuery) -> PassPlan:
    """Check the tensors, and find out which rows of which shard are asked for."""
    check_tensors(hidden, weight, query.temperature, labels=query.labels, mask=query.mask, token_ids=query.token_ids)
    shape = hidden.shape[:-1]
    rows, options = located(hidden, weight, query)
    labels, ids = (
        None if given is None else sort_labels(rows.take(given), options.shard, query.vocab_size, ignored)
        for given, ignored in ((query.labels, query.ignore_index), (query.token_ids, None))
    )
    chosen = ([] if labels is None else [labels.targets[:, None]]) + ([] if ids is None else [ids.targets])
    columns = [part for part in chosen if part.shape[1]]
    problem = partial(
        options.problem,
        chosen=torch.cat(columns, 1) if columns else None,
        scale=row_scale(rows, query.temperature, query.logit_scale, math_dtype(weight)),
        entropy=query.entropy,
        sum_pi_squared=query.sum_pi_squared,
        topk=query.topk,
    )
    tokens = hidden.reshape(shape.numel(), hidden.shape[-1])
    return PassPlan(tokens, rows, labels, ids, replace(options, problem=problem), query.out_of_vocab_grad)


def located(hidden: Tensor, weight: Tensor, query: LogprobQuery) -> tuple["Rows", PassOptions]:
    """The rows to compute, and what a pass is told of where it runs; the host waits at most once."""
    has_grad = torch.is_grad_enabled()
    if query.fuse_main_grad and has_grad and weight.requires_grad and not has_main_grad(weight):
        raise ValueError(
            "fuse_main_grad: expected a weight with main_grad (a parameter under Megatron's DDP or FSDP), got none"
        )
    words, group = len(weight), None if query.tp_group is None or query.tp_group.size() == 1 else query.tp_group
    ranks, rank = (1, 0) if group is None else (group.size(), group.rank())
    if query.topk or query.vocab_size is not None:
        check_vocabulary(ranks * words, query.vocab_size, query.topk)
    rows = select_rows(hidden, query)
    if group is not None and waiting_is_free(hidden):
        _require_agreement(rows.count if rows.index is None else len(rows.index), hidden.shape[-1], group)
    end = words if query.vocab_size is None else query.vocab_size - rank * words  # of the tokens in this shard
    problem = partial(
        Problem,
        rows=rows.index,
        columns=max(0, min(end, words)),
        tile_bytes=query.tile_bytes or DEFAULT_TILE_BYTES.get(hidden.device.type, DEFAULT_TILE_BYTES["cuda"]),
        keep_bytes=query.keep_bytes if has_grad and (hidden.requires_grad or weight.requires_grad) else 0,
    )
    return rows, PassOptions(
        problem=problem,
        shard=VocabShard(rank * words, words, ranks * words, group),
        reduce_hidden_grad=query.reduce_hidden_grad,
        main_grad_of=weight if query.fuse_main_grad else None,
        backend=choose_backend(query.backend, hidden.device),
    )


def _require_agreement(rows: int, width: int, group: ProcessGroup) -> None:
    """Tell ranks of other rows where that costs no wait: on a GPU, TORCH_DISTRIBUTED_DEBUG=DETAIL makes torch look."""
    facts = gather(torch.tensor([rows, width]), group).t().tolist()
    names = (("hidden, mask or labels", "number of rows to compute"), ("weight", "hidden size"))
    for (name, what), seen in zip(names, facts, strict=True):
        if len(set(seen)) > 1:
            raise ValueError(f"{name}: expected the same {what} on every rank of tp_group, got {seen}")


def row_scale(rows: "Rows", temperature: float | Tensor, logit_scale: float, dtype: torch.dtype) -> float | Tensor:
    """The factor of the raw product, `Problem.scale`, a number or `[rows, 1]`: here the temperature ends."""
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


@dataclass(frozen=True)
class Rows:
    """The rows of a call: all tokens, or those that a mask and labels select."""

    shape: torch.Size
    index: Tensor | None  # [rows] tokens to compute, all when None
    live: Tensor | None  # [rows] which of them are truly selected, all when None
    sound: Tensor | None  # 0-dim; False on the device turns every result into NaN, where raising would mean waiting

    @property
    def count(self) -> int:
        """How many rows are computed."""
        return self.shape.numel() if self.index is None else self.index.shape[0]

    def take(self, per_token: Tensor) -> Tensor:
        """The computed rows of a tensor shaped like the labels, or with more dimensions behind."""
        flat = per_token.reshape(self.shape.numel(), *per_token.shape[len(self.shape) :])
        return flat if self.index is None else flat[self.index]

    def take_grad(self, per_token: Tensor) -> Tensor:
        """The gradient of what `spread` spreads, from that of its result."""
        grad = self.take(per_token)
        for counts in (self.live, self.sound):
            grad = grad if counts is None else grad.where(counts, 0)
        return grad

    def spread(self, *results: Tensor | None) -> list[Tensor | None]:
        """Results `[rows, ...]` in the shape of the labels, 0 where nothing was computed."""
        spread: list[Tensor | None] = []
        for values in results:
            if values is None:
                spread.append(None)
                continue
            if self.live is not None:
                values = values.where(self.live.view(-1, *[1] * (values.dim() - 1)), 0)
            if self.index is not None:
                empty = values.new_zeros((self.shape.numel(), *values.shape[1:]))
                values = empty.index_copy(0, self.index, values)
            if self.sound is not None and values.dtype.is_floating_point:
                values = values.where(self.sound, torch.nan)
            spread.append(values.reshape((*self.shape, *values.shape[1:])))
        return spread


def select_rows(hidden: Tensor, query: LogprobQuery) -> Rows:
    """Those that are wanted: the host waits to learn how many they are, unless it may not, or is given a bound."""
    shape, chosen, bound = hidden.shape[:-1], query.rows_wanted(), query.max_rows
    if chosen is None:
        return Rows(shape, None, None, None)
    if waiting_is_free(hidden) or (bound is None and not being_captured(hidden)):
        count = int(chosen.count_nonzero())
        if bound is not None and bound < count:
            raise ValueError(f"max_rows: expected at least {count}, the rows to compute, got {bound}")
        return Rows(shape, None if count == shape.numel() else _first(chosen, count), None, None)
    if bound is None or bound == shape.numel():
        return Rows(shape, None, chosen, None)
    index = _first(chosen, bound)
    return Rows(shape, index, chosen[index], chosen.count_nonzero() <= bound)


def being_captured(tensor: Tensor) -> bool:
    """Whether a CUDA graph is captured now, which cannot wait."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _first(chosen: Tensor, count: int) -> Tensor:
    """The first `count` chosen tokens in order, without a device sync."""
    return (~chosen).to(torch.uint8).argsort(stable=True)[:count]


@dataclass(frozen=True)
class LabelRows:
    """The labels of the computed rows, sorted into tokens, ignored ones and those outside the vocabulary."""

    targets: Tensor  # [rows] the label's column, counted from this shard's first
    known: Tensor  # [rows] the label is a token
    stray: Tensor  # [rows] the label is neither a token nor ignored

    def settle(self, logprob: Tensor, logsumexp: Tensor, out_of_vocab_grad: str) -> Tensor:
        """Log-prob 0 where the label is not a token; "legacy" keeps the gradient of `-logsumexp` for those."""
        nothing = torch.zeros_like(logprob)
        if out_of_vocab_grad == "legacy":
            nothing = torch.where(self.stray, logsumexp.detach() - logsumexp, nothing)
        return torch.where(self.known, logprob, nothing)


def sort_labels(ids: Tensor, shard: VocabShard, vocab_size: int | None, ignore_index: int | None) -> LabelRows:
    """Sort token ids `[rows]` against the vocabulary."""
    ids = ids.long()
    inside = (ids >= 0) & (ids < (shard.total if vocab_size is None else vocab_size))
    meant = torch.ones_like(inside) if ignore_index is None else ids != ignore_index
    return LabelRows(ids - shard.start, inside & meant, ~inside & meant)
