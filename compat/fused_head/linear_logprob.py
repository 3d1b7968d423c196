"""The public functions: log-probs, entropy and more from hidden states and the LM-head weight."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, get_process_group_ranks
from torch.distributed.tensor import DTensor, Replicate, Shard

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
        weight: `[vocab / tp, h]`, this rank's shard of the LM head, as large as every rank's. A DTensor needs hidden
            states that are one on its mesh, or `tp_group`.
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
    per_token: dict[str, Any] = {"labels": labels, "mask": mask, "temperature": temperature}
    hidden, weight, group, per_token = local_parts(hidden, weight, tp_group, per_token)
    asked |= {"tp_group": group, **per_token}
    if torch.compiler.is_compiling():
        return LogprobOutput(*traced_linear_logprob(hidden, weight, asked))
    if isinstance(group, str):
        asked["tp_group"] = group_named(group)
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


_FULLY_SHARD = (
    "if fully_shard made it, call from the forward of the module that was wrapped together with its head, where the "
    "weight is whole, or call head.unshard() before"
)


def local_parts(
    hidden: Any, weight: Any, tp_group: ProcessGroup | str | None, rows: Mapping[str, Any]
) -> tuple[Any, Any, ProcessGroup | str | None, dict[str, Any]]:
    """Hidden states, weight, the group of the shards and the other tensors as the operator takes them.

    Ranks of tensor parallelism have the same tokens, those of FSDP2 others. A sharded weight does not say which they
    are: hidden states that are a DTensor on the same mesh do, or a `tp_group`.
    """
    plain = {name: _same_everywhere(name, value) for name, value in rows.items()}
    if not isinstance(weight, DTensor):
        if isinstance(hidden, DTensor):
            raise TypeError(
                "hidden: expected a plain tensor, because weight is one, got a DTensor; pass hidden.to_local(), or "
                "both as DTensors on the mesh of the tensor-parallel ranks."
            )
        return hidden, weight, tp_group, plain
    mesh = weight.device_mesh
    if mesh.ndim != 1 or weight.placements != (Shard(0),):
        raise ValueError(
            f"weight: expected a plain tensor, or a DTensor with the rows of the vocabulary on a mesh of one dimension "
            f"(Shard(0)), got {_shown(weight)}; {_FULLY_SHARD}."
        )
    group: ProcessGroup = mesh.get_group()
    if tp_group is not None and not _same_ranks(tp_group, group):
        raise ValueError(
            "tp_group: expected the group that holds the weight's shards, weight.device_mesh.get_group() with ranks "
            f"{get_process_group_ranks(group)}, got another; for other shards than those of tensor parallelism: "
            f"{_FULLY_SHARD}."
        )
    if isinstance(hidden, DTensor):
        if hidden.device_mesh != mesh or hidden.placements != (Replicate(),):
            raise ValueError(
                f"hidden: expected a DTensor that is replicated on the weight's mesh, got {_shown(hidden)}; call "
                "hidden.redistribute(weight.device_mesh, [Replicate()])."
            )
        hidden = hidden.to_local()
    elif tp_group is None:
        raise ValueError(
            f"weight: a DTensor ({_shown(weight)}) beside plain hidden states does not say what its ranks share; if "
            "they hold the shards of one head and have the same tokens, pass tp_group=weight.device_mesh.get_group(); "
            f"{_FULLY_SHARD}."
        )
    return hidden, weight.to_local(), group, plain


def _same_ranks(given: ProcessGroup | str, group: ProcessGroup) -> bool:
    ranks = get_process_group_ranks(group)
    return given == group.group_name if isinstance(given, str) else get_process_group_ranks(given) == ranks


def _same_everywhere(name: str, value: Any) -> Any:
    if isinstance(value, DTensor) and any(placement != Replicate() for placement in value.placements):
        raise ValueError(f"{name}: expected a plain tensor or a replicated DTensor, got {_shown(value)}")
    return value.to_local() if isinstance(value, DTensor) else value


def _shown(value: DTensor) -> str:
    return f"placements {value.placements} on {value.device_mesh}"
