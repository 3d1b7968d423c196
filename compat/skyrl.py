"""SkyRL's fused LM-head path on Megatron's output hook: log-probs and entropy from hidden states, packed and padded.

The gradient of the hidden states is this rank's part, as in SkyRL: `fused_lm_head_output_processor` returns hidden
states whose backward sums the parts.
"""

from mcore_unpatch.compat.requirements import require_hook, say_once

require_hook(__name__, unpatched=True)

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Module

from mcore_unpatch.compat.fused_head.linear_logprob import linear_logprob, vocab_pass
from mcore_unpatch.compat.fused_head.problem import chunk_tile_bytes, needed
from mcore_unpatch.compat.fused_head.settings import BackendName, LogprobOptions, check_vocab_range
from mcore_unpatch.compat.hook.attach import call_along
from mcore_unpatch.compat.hook.call import HookCall, Outputs, Processor, resolve_groups
from mcore_unpatch.compat.hook.find import find_language_model, refuse_patched
from mcore_unpatch.compat.hook.head import lent_weight, whole_hidden
from mcore_unpatch.compat.packing import gather
from mcore_unpatch.compat.packing.gather import Gradient


def fused_lm_head_output_processor(**keywords: Any) -> Tensor:
    """Returns hidden states `[b, s, h]` for the functions here; `context["lm_head_weight"]` is their second argument.

    MuP's factor is already applied. The backward sums the gradient over tensor-parallel ranks, with or without sequence
    parallelism.
    """
    say_once(__name__)
    call = HookCall.of(keywords)
    context = {} if call.context is None else call.context
    groups = context.get("groups") or resolve_groups()
    hidden = whole_hidden(call, groups)
    context["lm_head_weight"] = lent_weight(call)
    return call.finish(hidden)


# The context is the caller's own dictionary: the weight is put into it.
fused_lm_head_output_processor.takes_own_context = True  # type: ignore[attr-defined]


def call_model_with_fused_lm_head(
    model: Module,
    *args: Any,
    output_processor: Processor = fused_lm_head_output_processor,
    output_processor_context: dict[str, Any],
    **kwargs: Any,
) -> Any:
    """Call `model(*args, **kwargs)` and return hidden states: GPTModel or HybridModel, wrapped, with MTP or MuP.

    Afterwards `output_processor_context["lm_head_weight"]` is this rank's shard of the LM head. On a pipeline stage
    before the last there is no such key, and the stage's own output is returned.
    """
    say_once(__name__)
    path, context = find_language_model(model), output_processor_context
    refuse_patched("mcore_unpatch.compat.skyrl", path.model)
    context.setdefault("groups", resolve_groups(path.model))
    return call_along(path, model, output_processor, context, args, kwargs)


@dataclass(frozen=True)
class TokenPositions:
    """For every position of `[b, s - 1]`: its token in the packed row, and whether another token follows it."""

    token: Tensor  # [b, s - 1]
    valid: Tensor  # [b, s - 1] bool

    def take(self, row: Tensor) -> Tensor:
        """`[1, tokens]` to `[b, s - 1]`, 0 where there is nothing."""
        return row[0, self.token].where(self.valid, 0)

    def put(self, values: Tensor, tokens: int) -> Tensor:
        """`[b, s - 1]` to `[1, tokens]`, 0 where nothing belongs."""
        row = values.new_zeros(tokens + 1)
        token = self.token.where(self.valid, tokens)
        return row.scatter(0, token.flatten(), values.flatten())[None, :-1]


def places_of(
    padded_bounds: Tensor,
    unpacked_length: int,
    tokens: int,
    attention_mask: Tensor | None,
    sub_seq_lengths: list[list[int]] | None,
) -> TokenPositions:
    """By `sub_seq_lengths` (several sequences in each row), by `attention_mask` `[b, s]`, or left-aligned.

    Nothing here waits for the device.
    """
    bounds = padded_bounds.long()
    if sub_seq_lengths is None and attention_mask is not None:
        real = attention_mask.to(bounds.device, torch.bool)
        ordinal = real.long().cumsum(1)
        valid = real[:, :-1] & (ordinal[:, :-1] < ordinal[:, -1:])
        return TokenPositions((bounds[:-1, None] + ordinal[:, :-1] - 1).clamp(0, tokens - 1), valid)
    known = bounds.numel() - 1
    first, lengths = torch.arange(known + 1, device=bounds.device), bounds.diff()  # one sequence in each row
    if sub_seq_lengths is not None:
        if (given := sum(map(len, sub_seq_lengths))) != known:
            raise ValueError(f"sub_seq_lengths: expected {known} sub-sequences as in cu_seqlens_padded, got {given}")
        first = torch.tensor([0, *accumulate(map(len, sub_seq_lengths))], device=bounds.device)  # [b + 1]
        lengths = torch.tensor([n for row in sub_seq_lengths for n in row], device=bounds.device)
    token = bounds[first[:-1], None] + torch.arange(unpacked_length - 1, device=bounds.device)
    sequence = torch.searchsorted(bounds[1:], token.contiguous(), right=True)
    inside = sequence < first[1:, None]
    sequence = sequence.clamp(max=known - 1)
    valid = inside & (token - bounds[sequence] < lengths[sequence] - 1)
    return TokenPositions(token.clamp(0, tokens - 1), valid)


def from_parallel_hidden_to_logprobs(
    hidden: Tensor,
    lm_head_weight: Tensor,
    target: Tensor,
    vocab_start_index: int,
    vocab_end_index: int,
    tp_group: ProcessGroup,
    inference_only: bool = False,
    cp_group: ProcessGroup | None = None,
    chunk_size: int | None = None,
    temperature: float = 1.0,
    fused_backend: BackendName = "torch",
    *,
    num_actions: int | None = None,
    entropy: bool = False,
    cp_gradient: Gradient = "summed",
) -> Any:
    """`[b, s - 1]` fp32: at position i the log-prob of token i + 1 of `target` `[b, s]`, from hidden `[b, s / cp, h]`.

    The arguments after the `*` are new. `num_actions` keeps only the last positions, `[b, num_actions]`; the others are
    not computed. `entropy` returns `Outputs(log_probs, entropy)` from one pass, both with gradients. `cp_gradient` is
    what the gather over context-parallel ranks does to the gradient (see `gather_shares`).
    """
    check_vocab_range(vocab_start_index, vocab_end_index, lm_head_weight, tp_group)
    ranks, rank = gather.size_and_rank(cp_group)
    length = target.shape[1]
    window = _window(length, num_actions)
    padding = hidden.shape[1] * ranks - length
    if padding < 0:
        raise ValueError(
            f"hidden: expected [b, s / cp, h] with at least the {length} positions of target over {ranks} "
            f"context-parallel ranks, got {list(hidden.shape)}"
        )
    labels = torch.nn.functional.pad(target.roll(-1, 1), (0, padding))
    return _run(
        (hidden, lm_head_weight, gather.zigzag_split(labels, ranks, rank)),
        lambda share: gather.gather_sequence(share, cp_group, cp_gradient)[:, window],
        inference_only,
        temperature=temperature,
        mask=None if num_actions is None else gather.zigzag_split(_chosen(labels, window), ranks, rank),
        max_rows=None if num_actions is None else min(num_actions, hidden.shape[1]) * len(hidden),
        entropy=entropy,
        tp_group=tp_group,
        backend=fused_backend,
        tile_bytes=chunk_tile_bytes(chunk_size, len(hidden), lm_head_weight),
    )


def from_parallel_hidden_to_logprobs_packed_sequences(
    hidden: Tensor,
    lm_head_weight: Tensor,
    target: Tensor,
    cu_seqlens_padded: Tensor,
    unpacked_seqlen: int,
    vocab_start_index: int,
    vocab_end_index: int,
    group: ProcessGroup,
    inference_only: bool = False,
    cp_group: ProcessGroup | None = None,
    chunk_size: int | None = None,
    attention_mask: Tensor | None = None,
    sub_seq_lengths: list[list[int]] | None = None,
    temperature: float = 1.0,
    fused_backend: BackendName = "torch",
    *,
    num_actions: int | None = None,
    entropy: bool = False,
    cp_gradient: Gradient = "own",
) -> Any:
    """`[b, unpacked_seqlen - 1]` fp32 from a packed row: hidden `[1, tokens / cp, h]`, `target` `[1, tokens]`.

    Each log-prob is where its token was before packing: by `sub_seq_lengths`, else by `attention_mask`
    `[b, unpacked_seqlen]`, else left-aligned. 0 where no token follows. The arguments after the `*` are new and as in
    `from_parallel_hidden_to_logprobs`.
    """
    check_vocab_range(vocab_start_index, vocab_end_index, lm_head_weight, group)
    bounds, tokens = cu_seqlens_padded.to(hidden.device), target.shape[1]
    places = places_of(bounds, unpacked_seqlen, tokens, attention_mask, sub_seq_lengths)
    window = _window(unpacked_seqlen, num_actions)
    mask = None
    if num_actions is not None:
        mask = gather.split_packed_row(places.put(_chosen(places.token, window), tokens), bounds, cp_group)
    return _run(
        (hidden, lm_head_weight, gather.split_packed_row(target.roll(-1, 1), bounds, cp_group)),
        lambda share: places.take(gather.gather_packed_row(share, bounds, cp_group, cp_gradient))[:, window],
        inference_only,
        temperature=temperature,
        mask=mask,
        max_rows=None if num_actions is None else min(num_actions * len(places.token), hidden.shape[1]),
        entropy=entropy,
        tp_group=group,
        backend=fused_backend,
        tile_bytes=chunk_tile_bytes(chunk_size, 1, lm_head_weight),
    )


def fused_vocab_parallel_entropy_from_hidden(
    hidden: Tensor,
    lm_head_weight: Tensor,
    tp_group: ProcessGroup,
    chunk_size: int | None = None,
    temperature: float = 1.0,
    *,
    mask: Tensor | None = None,
    max_rows: int | None = None,
    fused_backend: BackendName = "torch",
) -> Tensor:
    """`[b, s]` fp32 from hidden `[b, s, h]`; `mask` and `max_rows` as in `linear_logprob`."""
    say_once(__name__, "linear_logprob")
    out = vocab_pass(
        hidden,
        lm_head_weight,
        temperature=temperature,
        mask=mask,
        max_rows=max_rows,
        entropy=True,
        tp_group=tp_group,
        reduce_hidden_grad=False,
        backend=fused_backend,
        tile_bytes=chunk_tile_bytes(chunk_size, len(hidden), lm_head_weight),
    )
    return needed(out.entropy)


def from_parallel_hidden_to_entropy_packed_sequences(
    hidden: Tensor,
    lm_head_weight: Tensor,
    cu_seqlens_padded: Tensor,
    unpacked_seqlen: int,
    num_actions: int,
    attention_mask: Tensor,
    loss_mask: Tensor | None,
    cp_group: ProcessGroup | None,
    tp_group: ProcessGroup,
    sub_seq_lengths: list[list[int]] | None = None,
    chunk_size: int | None = None,
    temperature: float = 1.0,
    *,
    fused_backend: BackendName = "torch",
) -> tuple[Tensor, Tensor]:
    """The mean entropy over the last `num_actions` positions of each row, weighted by `loss_mask` `[b, num_actions]`.

    Returns two numbers: the mean over all context-parallel ranks, without gradient, for metrics; and this rank's part
    of it, with gradient, for a loss that is summed over the ranks. Positions without weight are not computed.
    """
    ranks = 1 if cp_group is None else cp_group.size()
    bounds, tokens = cu_seqlens_padded.to(hidden.device), hidden.shape[1] * ranks
    places = places_of(bounds, unpacked_seqlen, tokens, attention_mask, sub_seq_lengths)
    weights = torch.zeros(places.token.shape, dtype=torch.float32, device=hidden.device)
    weights[:, -num_actions:] = 1.0 if loss_mask is None else loss_mask.to(weights)
    share = gather.split_packed_row(places.put(weights, tokens), bounds, cp_group)
    entropy = fused_vocab_parallel_entropy_from_hidden(
        hidden,
        lm_head_weight,
        tp_group,
        chunk_size,
        temperature,
        mask=share,
        max_rows=min(num_actions * len(weights), hidden.shape[1]),
        fused_backend=fused_backend,
    )
    mine = (entropy * share).sum()
    totals = torch.stack([mine.detach(), share.sum()])
    if ranks > 1:
        torch.distributed.all_reduce(totals, group=cp_group)
    count = totals[1].clamp(min=1.0)
    return totals[0] / count, mine / count


def _run(
    tensors: tuple[Tensor, Tensor, Tensor],
    whole: Callable[[Tensor], Tensor],
    inference_only: bool,
    *,
    max_rows: int | None = None,
    backend: BackendName,
    tile_bytes: int | None,
    **arguments: Any,
) -> Any:
    """`linear_logprob` of hidden states, weight and labels, as SkyRL treats labels; `whole` undoes the split."""
    say_once(__name__, "linear_logprob")
    with torch.set_grad_enabled(torch.is_grad_enabled() and not inference_only):
        options = LogprobOptions(
            reduce_hidden_grad=False,
            out_of_vocab_grad="legacy",
            max_rows=max_rows,
            backend=backend,
            tile_bytes=tile_bytes,
        )
        log_probs, entropy = linear_logprob(*tensors, ignore_index=None, options=options, **arguments)
        return whole(log_probs) if entropy is None else Outputs(log_probs=whole(log_probs), entropy=whole(entropy))


def _chosen(like: Tensor, window: slice) -> Tensor:
    """1 in the window, 0 elsewhere."""
    chosen = torch.zeros_like(like)
    chosen[:, window] = 1
    return chosen


def _window(length: int, num_actions: int | None) -> slice:
    """The last `num_actions` of the `length - 1` positions that have a token after them."""
    if num_actions is not None and not 0 < num_actions < length:
        raise ValueError(f"num_actions: expected 1 to {length - 1} for sequences of {length} tokens, got {num_actions}")
    return slice(0 if num_actions is None else length - 1 - num_actions, length - 1)


# As SkyRL 0.3 called them.
_fused_lm_head_output_processor = fused_lm_head_output_processor
_fused_vocab_parallel_entropy_from_hidden = fused_vocab_parallel_entropy_from_hidden
