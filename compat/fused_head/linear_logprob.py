"""The public functions: log-probs, entropy and more from hidden states and the LM-head weight.

In `torch.compile` two opaque operators, for results and gradients. A graph saves what an operator returns: so the
forward returns what the backward needs of every token, too.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from .autograd import input_grads, row_results
from .plan import PassPlan, VocabOutput, plan_pass, run_pass
from .problem import needed
from .settings import LogprobOptions, LogprobQuery, check_tensors, group_named, math_dtype

# The arguments that are no tensors, and their types in the schema of both operators.
_SETTINGS = {
    "temperature": "float",
    "entropy": "bool",
    "ignore_index": "SymInt?",
    "vocab_size": "SymInt?",
    "tp_group": "str",
    "keep_bytes": "SymInt",
    "logit_scale": "float",
    "max_rows": "SymInt?",
    "reduce_hidden_grad": "bool",
    "fuse_main_grad": "bool",
    "out_of_vocab_grad": "str",
    "backend": "str",
    "tile_bytes": "SymInt?",
}
_CALL = "Tensor hidden, Tensor weight, Tensor labels, Tensor? mask, Tensor? temperatures, " + ", ".join(
    f"{kind} {name}" for name, kind in _SETTINGS.items()
)


def traced_linear_logprob(hidden: Tensor, weight: Tensor, asked: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """`linear_logprob` as one node of a graph; `asked` are the arguments of a `LogprobQuery`."""
    temperature, group = asked["temperature"], asked["tp_group"]
    per_token = temperature if isinstance(temperature, Tensor) else None
    given = {**asked, "temperature": temperature if per_token is None else 1.0}
    given["tp_group"] = "" if group is None else group if isinstance(group, str) else group.group_name
    settings = [given[name] for name in _SETTINGS]
    logprobs, entropy, *_ = _results(hidden, weight, asked["labels"], asked["mask"], per_token, *settings)
    return logprobs, entropy if asked["entropy"] else None


def _plan(
    hidden: Tensor, weight: Tensor, labels: Tensor, mask: Tensor | None, temperatures: Tensor | None, *settings: Any
) -> PassPlan:
    given = dict(zip(_SETTINGS, settings, strict=True))
    given["tp_group"] = group_named(given["tp_group"]) if given["tp_group"] else None
    if temperatures is not None:
        given["temperature"] = temperatures
    return plan_pass(hidden, weight, LogprobQuery(labels=labels, mask=mask, **given))


def _forward(*call: Any) -> tuple[Tensor, ...]:
    """Log-probs and entropy of all tokens, then their maxima and `log_sum`; without entropy that is empty."""
    plan = _plan(*call)
    results, rows, _ = row_results(plan.tokens, call[1], plan.options)
    out = plan.output(results)
    spread = plan.rows.spread(*rows[:2])
    return tuple(
        call[0].new_empty(0) if part is None else part.contiguous() for part in (out.logprobs, out.entropy, *spread)
    )


def _backward(
    logprobs_grad: Tensor | None,
    entropy_grad: Tensor | None,
    logprobs: Tensor,
    entropy: Tensor,
    row_max: Tensor,
    log_sum: Tensor,
    need_hidden: bool,
    need_weight: bool,
    *call: Any,
) -> tuple[Tensor, Tensor]:
    """The gradients of hidden states and weight; empty where one is not needed."""
    hidden, weight = call[:2]
    plan = _plan(*call)
    rows, labels = plan.rows, needed(plan.labels)
    known = stray = level = level_grad = None
    if logprobs_grad is not None:
        own = rows.take_grad(logprobs_grad)
        known = own.where(labels.known, 0)[:, None]
        stray = (-own).where(labels.stray, 0) if plan.out_of_vocab_grad == "legacy" else None
    if entropy_grad is not None:
        level, level_grad = rows.take(entropy), rows.take_grad(entropy_grad)
    saved = (rows.take(row_max), rows.take(log_sum), rows.take(logprobs)[:, None], level, None, None, None)
    output_grads = (known, level_grad, stray, None, None, None)
    found = input_grads(plan.tokens, weight, plan.options, (saved, ()), output_grads, (need_hidden, need_weight))
    first, second = (
        like.new_empty(0) if grad is None else grad.view(like.shape)
        for grad, like in zip(found, (hidden, weight), strict=True)
    )
    return first, second


_results = torch.library.custom_op(
    "mcore_unpatch::linear_logprob", _forward, mutates_args=(), schema=f"({_CALL}) -> (Tensor, Tensor, Tensor, Tensor)"
)
_gradients = torch.library.custom_op(
    "mcore_unpatch::linear_logprob_backward",
    _backward,
    mutates_args=(),
    schema="(Tensor? logprobs_grad, Tensor? entropy_grad, Tensor logprobs, Tensor level, Tensor row_max, "
    f"Tensor log_sum, bool need_hidden, bool need_weight, {_CALL}) -> (Tensor, Tensor)",
)


@_results.register_fake
def _shapes(
    hidden: Tensor, weight: Tensor, labels: Tensor, mask: Tensor | None, temperatures: Tensor | None, *settings: Any
) -> tuple[Tensor, ...]:
    given = dict(zip(_SETTINGS, settings, strict=True))
    check_tensors(hidden, weight, 1.0 if temperatures is None else temperatures, labels=labels, mask=mask)
    for name, expected in (("keep_bytes", 0), ("fuse_main_grad", False)):
        if given[name]:
            raise ValueError(
                f"{name}: expected {expected} under torch.compile, whose graphs save and write only what an operator "
                f"returns, got {given[name]}; call linear_logprob from a function under torch.compiler.disable."
            )
    dtype = math_dtype(weight)
    each = [hidden.new_empty(labels.shape, dtype=dtype) for _ in range(4)]
    if not given["entropy"]:
        each[1] = hidden.new_empty(0)
    return tuple(each)


@_gradients.register_fake
def _shapes_of_gradients(*call: Any) -> tuple[Tensor, Tensor]:
    need_hidden, need_weight, hidden, weight = call[6:10]
    return hidden.new_empty(hidden.shape if need_hidden else 0), weight.new_empty(weight.shape if need_weight else 0)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    ctx.save_for_backward(*inputs[:5], *output)
    ctx.settings = inputs[5:]
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    need = ctx.needs_input_grad[:2]
    entropy_grad = grads[1] if ctx.settings[list(_SETTINGS).index("entropy")] else None
    found = _gradients(grads[0], entropy_grad, *saved[5:], *need, *saved[:5], *ctx.settings)
    return *(grad if asked else None for grad, asked in zip(found, need, strict=True)), *(None,) * (3 + len(_SETTINGS))


_results.register_autograd(_differentiate, setup_context=_save)


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
        temperature: a number, or one per token `[...]`, without gradient; a wrong one on a GPU makes its row NaN.
        mask: `[...]`; rows where it is 0 are not computed, and all their results are 0 without gradient.
        entropy: also return the entropy of every row.
        ignore_index: rows with this label are left out as by the mask. None: no label is, and nothing waits.
        vocab_size: rows of the LM head from this id on are padding and are left out.
        tp_group: the ranks that hold the shards, in order, or its name; every rank passes the same rows, and gets all.
        keep_bytes: how many bytes of logits the forward may keep for the first backward, two per logit. The torch
            backend keeps nothing.
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
