"""NeMo RL's function from hidden states and LM-head weight to the log-probs of the next tokens."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.checks import check_vocab_range
from mcore_unpatch.compat.fused_head.linear_logprob import linear_logprob
from mcore_unpatch.compat.fused_head.memory import chunk_tile_bytes
from mcore_unpatch.compat.nemo_rl.processor import NO_TOKEN, whole_but_last
from mcore_unpatch.compat.packing.gather import Gradient
from mcore_unpatch.compat.packing.labels import next_token_labels


def from_parallel_hidden_states_to_logprobs(
    tensor_parallel_hidden_states: Tensor,
    output_weight_layer: Tensor,
    runtime_gather_output: bool | None,
    target: Tensor,
    vocab_start_index: int,
    vocab_end_index: int,
    tp_group: ProcessGroup,
    inference_only: bool = False,
    cp_group: ProcessGroup | None = None,
    chunk_size: int | None = None,
    *,
    temperature: float | Tensor = 1.0,
    packed_seq_params: Any = None,
    cp_gradient: Gradient = "summed",
) -> Tensor:
    """`[b, s - 1]` fp32 log-probs of the token after each of `target` `[b, s]`.

    Hidden states are `[s / tp, b, h]` as sequence parallelism leaves them, or whole `[s, b, h]`. Under context
    parallelism hidden states and `target` are this rank's share, and the result is the whole sequence. The arguments
    after the `*` are new; `runtime_gather_output` has no effect, as before.
    """
    hidden, weight = tensor_parallel_hidden_states, output_weight_layer
    _check(hidden, weight, target, vocab_start_index, vocab_end_index, tp_group)
    shared = hidden.shape[0] != target.shape[1]
    labels = next_token_labels(target, packed_seq_params=packed_seq_params, cp_group=cp_group, fill=NO_TOKEN)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not inference_only):
        if shared:
            from megatron.core.tensor_parallel import gather_from_sequence_parallel_region

            hidden = gather_from_sequence_parallel_region(hidden, tensor_parallel_output_grad=True, group=tp_group)
        log_probs, _ = linear_logprob(
            hidden,
            weight,
            labels.T,
            temperature=temperature.T if isinstance(temperature, Tensor) and temperature.dim() == 2 else temperature,
            tp_group=tp_group,
            reduce_hidden_grad=not shared,
            ignore_index=NO_TOKEN,
            out_of_vocab_grad="legacy",
            tile_bytes=chunk_tile_bytes(chunk_size, hidden.shape[1], weight),
        )
        return whole_but_last(log_probs.T.contiguous(), packed_seq_params, cp_group, cp_gradient)


def _check(hidden: Tensor, weight: Tensor, target: Any, start: int, end: int, group: ProcessGroup) -> None:
    if not isinstance(target, Tensor):
        raise TypeError(
            f"target: expected token ids [b, s], got {type(target).__name__}; use the arguments of NeMo RL "
            "0.7.0 and later (0.6.0 had output_weight as the third, which was removed)."
        )
    if hidden.shape[0] not in (target.shape[1], target.shape[1] // group.size()):
        raise ValueError(
            f"tensor_parallel_hidden_states: expected [s, b, h] or [s / tp, b, h] with s = {target.shape[1]} "
            f"(from target) and tp = {group.size()}, got {list(hidden.shape)}"
        )
    check_vocab_range(start, end, weight, group)
