"""The public functions: log-probs, entropy and more from hidden states and the LM-head weight."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.compiled import traced_linear_logprob
from mcore_unpatch.compat.fused_head.dtensors import local_parts
from mcore_unpatch.compat.fused_head.plan import VocabOutput, run_pass
from mcore_unpatch.compat.fused_head.problem import needed
from mcore_unpatch.compat.fused_head.settings import LogprobOptions, VocabQuery, group_named, takes


class LogprobOutput(NamedTuple):
    """The results of `linear_logprob`, shaped like the labels; both differentiable."""

    logprobs: Tensor
    entropy: Tensor | None  # None unless asked for


_PLAIN = LogprobOptions()  # made once: a graph of torch 2.6 cannot make one


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
        hidden: `[..., h]`; cast to the weight's dtype for the product, and its gradient cast back. Autocast has no
            effect: the product is in the weight's dtype.
        weight: `[vocab / tp, h]`, this rank's shard of the LM head. Shards may be unequal. A DTensor needs hidden
            states that are one on its mesh, or `tp_group`.
        labels: `[...]` global token ids, aligned with `hidden`.
        temperature: a number, or one per token `[...]`. Not differentiable: a tensor that requires grad raises.
            In a tensor on a GPU, 0, a negative number or NaN makes its row NaN, because raising would need a sync.
        mask: `[...]`; rows where it is 0 are not computed and return 0 without gradient. It selects rows; it is not
            a weight.
        entropy: also return the entropy of every row; that of a row left out, by the mask or by its label, is 0.
        ignore_index: rows with this label are left out as the mask leaves rows out: they are not computed, and log-prob
            and entropy are 0 without gradient. None: no label is ignored, and nothing waits; one outside the
            vocabulary has log-prob 0, and its row an entropy.
        vocab_size: rows of the LM head from this id on are padding and are left out.
        tp_group: the ranks that hold the shards, in order, or the group's name. Every rank passes the same rows and
            gets all results.
        keep_bytes: how many bytes of logits the forward may keep, so that the backward need not compute them again:
            two bytes per logit, for as many columns as fit. Bytes that are not free raise torch's OutOfMemoryError.
            The first backward uses the kept logits up; a second one computes everything again. The torch backend keeps
            nothing.
        options: what few callers set: `LogprobOptions(max_rows=..., logit_scale=..., ...)`.
    """
    if labels is None:
        raise TypeError("labels: expected a tensor, got None (use vocab_pass to call without labels)")
    if options is not None and not isinstance(options, LogprobOptions):
        raise TypeError(f"options: expected LogprobOptions(...), got {type(options).__name__}")
    options = _PLAIN if options is None else options
    others: dict[str, Any] = {
        "entropy": entropy,
        "ignore_index": ignore_index,
        "vocab_size": vocab_size,
        "keep_bytes": keep_bytes,
    }
    per_token: dict[str, Any] = {"labels": labels, "mask": mask, "temperature": temperature}
    hidden, weight, tp_group, per_token = local_parts(hidden, weight, tp_group, per_token)
    if torch.compiler.is_compiling():
        traced = traced_linear_logprob(hidden, weight, options, tp_group=tp_group, **per_token, **others)
        return LogprobOutput(*traced)
    group = group_named(tp_group) if isinstance(tp_group, str) else tp_group
    out = run_pass(hidden, weight, VocabQuery(tp_group=group, **per_token, **others, **vars(options)))
    return LogprobOutput(needed(out.logprobs), out.entropy)


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
