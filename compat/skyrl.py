"""SkyRL's fused LM-head path on Megatron's output hook: log-probs and entropy from hidden states, packed and padded.

As in SkyRL the gradient of the hidden states is this rank's part; `fused_lm_head_output_processor` sums the parts.
"""

from .requirements import require_hook, say_once

require_hook(__name__, unpatched=True)

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Module

from . import packing
from .fused_head.linear_logprob import vocab_pass
from .fused_head.plan import VocabOutput
from .fused_head.problem import needed
from .fused_head.settings import BackendName, check_vocab_range
from .fused_head.torch_backend import chunk_tile_bytes
from .hook.attach import call_along
from .hook.call import HookCall, Processor, resolve_groups
from .hook.find import find_language_model, refuse_patched
from .hook.head import lent_weight, whole_hidden


def fused_lm_head_output_processor(**keywords: Any) -> Tensor:
    """Hidden states `[b, s, h]`, MuP applied, for the functions here; the head is in `context["lm_head_weight"]`."""
    say_once(__name__)
    call = HookCall.of(keywords)
    context = {} if call.context is None else call.context
    hidden = whole_hidden(call, context.get("groups") or resolve_groups())
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
    """Call `model(*args, **kwargs)` for hidden states; the context's `lm_head_weight` is the head afterwards."""
    say_once(__name__)
    path = find_language_model(model)
    refuse_patched(__name__, path.model)
    output_processor_context.setdefault("groups", resolve_groups(path.model))
    return call_along(path, model, output_processor, output_processor_context, args, kwargs)


def places_of(
    bounds: Tensor, length: int, tokens: int, attention_mask: Tensor | None, sub_seq_lengths: list[list[int]] | None
) -> tuple[Tensor, Tensor]:
    """For every position of `[b, length - 1]`: its token in the packed row, and whether another token follows it.

    By `sub_seq_lengths` (several sequences in each row), by `attention_mask` `[b, length]`, or left-aligned.
    """
    bounds = bounds.long()
    if sub_seq_lengths is None and attention_mask is not None:
        real = attention_mask.to(bounds.device, torch.bool)
        ordinal = real.long().cumsum(1)
        follows = real[:, :-1] & (ordinal[:, :-1] < ordinal[:, -1:])
        return (bounds[:-1, None] + ordinal[:, :-1] - 1).clamp(0, tokens - 1), follows
    known = bounds.numel() - 1
    first, lengths = torch.arange(known + 1, device=bounds.device), bounds.diff()  # one sequence in each row
    if sub_seq_lengths is not None:
        if (given := sum(map(len, sub_seq_lengths))) != known:
            raise ValueError(f"sub_seq_lengths: expected {known} sub-sequences as in cu_seqlens_padded, got {given}")
        first = torch.tensor([0, *accumulate(map(len, sub_seq_lengths))], device=bounds.device)  # [b + 1]
        lengths = torch.tensor([n for row in sub_seq_lengths for n in row], device=bounds.device)
    token = bounds[first[:-1], None] + torch.arange(length - 1, device=bounds.device)
    sequence = torch.searchsorted(bounds[1:], token.contiguous(), right=True)
    inside = sequence < first[1:, None]
    sequence = sequence.clamp(max=known - 1)
    return token.clamp(0, tokens - 1), inside & (token - bounds[sequence] < lengths[sequence] - 1)


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
) -> Tensor:
    """`[b, s - 1]` fp32, at position i the log-prob of token i + 1 of `target` `[b, s]`; hidden `[b, s / cp, h]`."""
    check_vocab_range(vocab_start_index, vocab_end_index, lm_head_weight, tp_group)
    ranks, rank = packing.size_and_rank(cp_group)
    length = target.shape[1]
    if (padding := hidden.shape[1] * ranks - length) < 0:
        expected = f"[b, s / cp, h] with at least the {length} positions of target over {ranks} context-parallel ranks"
        raise ValueError(f"hidden: expected {expected}, got {list(hidden.shape)}")
    labels = packing.zigzag_split(torch.nn.functional.pad(target.roll(-1, 1), (0, padding)), ranks, rank)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not inference_only):
        out = _pass(hidden, lm_head_weight, tp_group, chunk_size, temperature, fused_backend, labels=labels)
        return packing.gather_sequence(needed(out.logprobs), cp_group, "summed")[:, : length - 1]


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
) -> Tensor:
    """`[b, unpacked_seqlen - 1]` fp32, where `places_of` puts them, of hidden `[1, tokens / cp, h]`; 0 elsewhere."""
    check_vocab_range(vocab_start_index, vocab_end_index, lm_head_weight, group)
    bounds = cu_seqlens_padded.to(hidden.device)
    token, follows = places_of(bounds, unpacked_seqlen, target.shape[1], attention_mask, sub_seq_lengths)
    labels = packing.split_packed_row(target.roll(-1, 1), bounds, cp_group)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not inference_only):
        out = _pass(hidden, lm_head_weight, group, chunk_size, temperature, fused_backend, labels=labels)
        return packing.gather_sequence(needed(out.logprobs), cp_group, bounds=bounds)[0, token].where(follows, 0)


def _pass(
    hidden: Tensor, weight: Tensor, group: Any, chunk_size: int | None, temperature: float, backend: Any, **asked: Any
) -> VocabOutput:
    """One pass that treats labels and gradients as SkyRL does."""
    say_once(__name__, "linear_logprob")
    asked |= {"temperature": temperature, "tp_group": group, "backend": backend, "reduce_hidden_grad": False}
    asked |= {"ignore_index": None, "out_of_vocab_grad": "legacy"}
    return vocab_pass(hidden, weight, tile_bytes=chunk_tile_bytes(chunk_size, len(hidden), weight), **asked)


def fused_vocab_parallel_entropy_from_hidden(
    hidden: Tensor,
    lm_head_weight: Tensor,
    tp_group: ProcessGroup,
    chunk_size: int | None = None,
    temperature: float = 1.0,
) -> Tensor:
    """`[b, s]` fp32 from hidden `[b, s, h]`."""
    out = _pass(hidden, lm_head_weight, tp_group, chunk_size, temperature, "torch", entropy=True)
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

    That of all context-parallel ranks, without gradient; and this rank's part of it, with its gradient.
    """
    ranks, _ = packing.size_and_rank(cp_group)
    bounds, tokens = cu_seqlens_padded.to(hidden.device), hidden.shape[1] * ranks
    token, follows = places_of(bounds, unpacked_seqlen, tokens, attention_mask, sub_seq_lengths)
    weights = torch.zeros(token.shape, dtype=torch.float32, device=hidden.device)
    weights[:, -num_actions:] = 1.0 if loss_mask is None else loss_mask.to(weights)
    row = weights.new_zeros(tokens + 1).scatter(0, token.where(follows, tokens).flatten(), weights.flatten())
    share = packing.split_packed_row(row[None, :-1], bounds, cp_group)
    kept: dict[str, Any] = {"mask": share, "max_rows": min(num_actions * len(weights), hidden.shape[1])}
    out = _pass(hidden, lm_head_weight, tp_group, chunk_size, temperature, fused_backend, entropy=True, **kept)
    mine = (needed(out.entropy) * share).sum()
    totals = torch.stack([mine.detach(), share.sum()])
    if ranks > 1:
        torch.distributed.all_reduce(totals, group=cp_group)
    count = totals[1].clamp(min=1.0)
    return totals[0] / count, mine / count


_fused_lm_head_output_processor = fused_lm_head_output_processor  # as SkyRL 0.3 called them
_fused_vocab_parallel_entropy_from_hidden = fused_vocab_parallel_entropy_from_hidden
