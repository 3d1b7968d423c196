"""NeMo RL's processor: log-probs of the next tokens, `[b, s - 1]`, the whole sequence on every rank."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.memory import chunk_tile_bytes
from mcore_unpatch.compat.hook.call import HookCall, Outputs
from mcore_unpatch.compat.hook.context import HookContext
from mcore_unpatch.compat.hook.groups import resolve_groups, sequence_group
from mcore_unpatch.compat.hook.head import HeadOptions, Wants, head_pass
from mcore_unpatch.compat.packing.gather import Gradient, gather_packed_row, gather_sequence

# Stands where no token follows; no label of a caller is it, and no gradient comes from there.
NO_TOKEN = -(1 << 31)
# Megatron's own logits, or what NeMo RL's patch of `GPTModel.forward` makes of them.
Numbers = Literal["megatron", "nemo_rl"]


@dataclass(frozen=True, kw_only=True)
class NextTokenLogProbs:
    """`[b, s - 1]` fp32: at position i the log-prob of token i + 1. With `entropy`, `Outputs(log_probs, entropy)`.

    `labels` are the token ids themselves; they are shifted by one here, within each packed sequence: where the next
    token belongs to another sequence, the result is 0. Packed rows give `[1, tokens - 1]`.
    Under context parallelism every rank gets the whole sequence, in order. `cp_gradient="summed"` sums the gradients
    over the ranks, as NeMo RL's own gather does, for a loss divided by `cp`; `"own"` is for a loss that is not.
    `chunk_size` bounds the memory: no temporary is larger than the fp32 logits of that many positions.
    `numbers="nemo_rl"` is what NeMo RL's patch computes: MuP does not scale the logits, and a packed row counts as one
    sequence (except under context parallelism, which the patch does not support: labels stay in their sequences).
    """

    chunk_size: int | None = None
    temperature: float | Tensor = 1.0
    entropy: bool = False
    cp_gradient: Gradient = "summed"
    numbers: Numbers = "megatron"

    def __post_init__(self) -> None:
        if self.numbers not in get_args(Numbers):
            raise ValueError(f'numbers must be "megatron" or "nemo_rl", not {self.numbers!r}')

    def __call__(self, **keywords: Any) -> Any:
        """One pass over the vocabulary; without a graph in a call for inference."""
        call = HookCall.of(keywords)
        with torch.set_grad_enabled(torch.is_grad_enabled() and call.inference_context is None):
            one_sequence = self.numbers == "nemo_rl" and self._is_whole(call)
            shifted = replace(call, packed_seq_params=None) if one_sequence else call
            out = head_pass(shifted, self._options(call), Wants(logprobs=True, entropy=self.entropy))
            results = {"log_probs": out.logprobs, "entropy": out.entropy if self.entropy else None}
            whole = {name: self._whole(call, value) for name, value in results.items() if value is not None}
        return Outputs(**whole) if self.entropy else whole["log_probs"]

    def _options(self, call: HookCall) -> HeadOptions:
        return HeadOptions(
            temperature=self.temperature,
            shift="next_token",
            scale_logits=self.numbers == "megatron",
            ignore_index=NO_TOKEN,
            out_of_vocab_grad="legacy",
            tile_bytes=chunk_tile_bytes(self.chunk_size, call.hidden_states.shape[1], call.weight),
        )

    def _is_whole(self, call: HookCall) -> bool:
        group = self._cp_group(call)
        return group is None or group.size() == 1

    def _whole(self, call: HookCall, share: Tensor) -> Tensor:
        """`[b, s / cp]` to `[b, s - 1]`."""
        return whole_but_last(share, call.packed_seq_params, self._cp_group(call), self.cp_gradient)

    def _cp_group(self, call: HookCall) -> ProcessGroup | None:
        groups = HookContext.of(call.context).groups or resolve_groups()
        return sequence_group(call.packed_seq_params, groups, call.config)


def whole_but_last(share: Tensor, packed: Any, cp_group: ProcessGroup | None, gradient: Gradient) -> Tensor:
    """The shares of all context-parallel ranks as one row per sequence, without the last position."""
    if cp_group is None or cp_group.size() == 1:
        return share[:, :-1]
    if packed is None:
        return gather_sequence(share, cp_group, gradient)[:, :-1]
    bounds = packed.cu_seqlens_q if packed.cu_seqlens_q_padded is None else packed.cu_seqlens_q_padded
    return gather_packed_row(share, bounds, cp_group, gradient)[:, :-1]
