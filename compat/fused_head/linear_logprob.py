"""The public functions: log-probs, entropy and more from hidden states and the LM-head weight."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.compiled import traced_linear_logprob
from mcore_unpatch.compat.fused_head.plan import VocabOutput, run_pass
from mcore_unpatch.compat.fused_head.problem import needed
from mcore_unpatch.compat.fused_head.settings import LogprobOptions, LogprobQuery, group_named


class LogprobOutput(NamedTuple):
    """The results of `linear_logprob`, shaped like the labels; both differentiable."""

    logprobs: Tensor
    entropy: Tensor | None  # None unless asked for


_PLAIN = LogprobOptions()
_OPTIONS = tuple(LogprobOptions.__dataclass_fields__)  # made once: a graph of torch 2.6 cannot make one


def linear_logprob(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    temperature: float | Tensor = 1.0,
    mask: Tensor | None = None,
    entropy: bool = False,
    ignore_index: int | None = -100,
    vocab_size: int | None = None,
    tp_group: ProcessGroup | str | None = None,
    keep_bytes: int = 0,
    options: LogprobOptions | None = None,
) -> LogprobOutput:
    """Log-probs of `labels`, and the entropy, under `softmax(hidden @ weight.T * logit_scale / temperature)`.

    `[tokens, vocab]` is never built. Both results are float32 (float64 for a float64 weight), shaped like `labels`.
    In `torch.compile` it is one operator, with `fullgraph=True` too, but for `keep_bytes` and `fuse_main_grad`.

    Args:
        hidden: `[..., h]`; cast to the weight's dtype for the product, also under autocast, and its gradient cast back.
        weight: `[vocab / tp, h]`, this rank's shard of the LM head, as large as every rank's.
        labels: `[...]` global token ids, aligned with `hidden`; log-prob 0 for one outside the vocabulary.
        temperature: a number, or one per token `[...]`, without gradient. In a tensor on a GPU, 0, a negative number or
            NaN makes its row NaN, because raising would need a sync.
        mask: `[...]`; rows where it is 0 are not computed, and all their results are 0 without gradient.
        entropy: also return the entropy of every row.
        ignore_index: rows with this label are left out as by the mask. None: no label is, and nothing waits.
        vocab_size: rows of the LM head from this id on are padding and are left out.
        tp_group: the ranks that hold the shards, in order, or the group's name. Every rank passes the same rows and
            gets all results.
        keep_bytes: how many bytes of logits the forward may keep for the first backward, two per logit, for as many
            columns as fit. Bytes that are not free raise torch's OutOfMemoryError. The torch backend keeps nothing.
        options: what few callers set: `LogprobOptions(max_rows=..., logit_scale=..., ...)`.
    """
    if labels is None:
        raise TypeError("labels: expected a tensor, got None (use vocab_pass to call without labels)")
    if options is not None and not isinstance(options, LogprobOptions):
        raise TypeError(f"options: expected LogprobOptions(...), got {type(options).__name__}")
    options = _PLAIN if options is None else options
    asked: dict[str, Any] = {name: getattr(options, name) for name in _OPTIONS}
    asked |= {"entropy": entropy, "ignore_index": ignore_index, "vocab_size": vocab_size, "keep_bytes": keep_bytes}
    asked |= {"labels": labels, "mask": mask, "temperature": temperature, "tp_group": tp_group}
    if torch.compiler.is_compiling():
        return LogprobOutput(*traced_linear_logprob(hidden, weight, asked))
    if isinstance(tp_group, str):
        asked["tp_group"] = group_named(tp_group)
    out = run_pass(hidden, weight, LogprobQuery(**asked))
    return LogprobOutput(needed(out.logprobs), out.entropy)


def vocab_pass(hidden: Tensor, weight: Tensor, labels: Tensor | None = None, **asked: Any) -> VocabOutput:
    """Everything one pass over the vocabulary can compute; takes the arguments of `linear_logprob`, and these.

    Args:
        topk: also return this many of the largest logits of each row, and their ids.
        token_ids: `[..., k]`; also return the log-probs of these, 0 for one outside the vocabulary.
        sum_pi_squared: also return the sum of the squared probabilities of each row.
    """
    return run_pass(hidden, weight, LogprobQuery(labels=labels, **asked))
