"""Micro-batches as slime and miles lay them out, and the sums that tests take of results."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import torch
from harness.models import Case, build_config, build_model
from harness.oracle import gradients_of
from megatron.core import parallel_state
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import Float16Module
from torch import Tensor

TOTAL, RESPONSE = [9, 7, 13, 4], [4, 6, 2, 0]
TAIL = 7  # padding after the last sample
ARGS = Namespace(
    rollout_temperature=0.8,
    entropy_coef=0.1,
    allgather_cp=False,
    log_probs_chunk_size=5,
    qkv_format="thd",
    true_on_policy_mode=False,
    recompute_loss_function=False,
    calculate_per_token_loss=False,
    loss_type="sft_loss",
)


@dataclass(frozen=True)
class MicroBatch:
    """This rank's call of the model, and what the loss functions are told about it."""

    call: dict[str, Any]
    samples: dict[str, Any]  # unconcat_tokens, total_lengths, response_lengths


def tokens_of(case: Case) -> list[Tensor]:
    generator = torch.Generator().manual_seed(11)
    return [torch.randint(0, case.vocab, (length,), generator=generator) for length in TOTAL]


def packed(case: Case) -> MicroBatch:
    """Each sample padded to a multiple of two chunks a rank, of which this rank has two; then padding."""
    ranks, rank = case.cp, parallel_state.get_context_parallel_rank()
    rows, bounds = [], [0]
    for tokens in [*tokens_of(case), torch.zeros(TAIL * ranks, dtype=torch.long)]:
        chunk = -(-len(tokens) // (2 * ranks)) if ranks > 1 else len(tokens)
        whole = torch.nn.functional.pad(tokens, (0, (2 * ranks * chunk if ranks > 1 else chunk) - len(tokens)))
        chunks = whole.split(chunk)
        rows += [chunks[rank], chunks[2 * ranks - 1 - rank]] if ranks > 1 else [whole]
        bounds.append(bounds[-1] + len(whole))
    lengths = torch.tensor(bounds, dtype=torch.int32)
    longest = int(lengths.diff().max())
    params = PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=lengths,
        cu_seqlens_kv=lengths,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )
    return _batch(case, torch.cat(rows)[None], packed_seq_params=params)


def contiguous(case: Case) -> MicroBatch:
    """One row of all samples and padding, of which each rank has an equal part (slime's `allgather_cp`)."""
    row = torch.cat([*tokens_of(case), torch.zeros(7, dtype=torch.long)])  # a multiple of 2 * cp
    return _batch(case, row.chunk(case.cp)[parallel_state.get_context_parallel_rank()][None])


def padded(case: Case) -> MicroBatch:
    """One row for each sample, padded to the same length (miles' "bshd")."""
    ranks, rank = case.cp, parallel_state.get_context_parallel_rank()
    length = 16
    rows = torch.stack([torch.nn.functional.pad(tokens, (0, length - len(tokens))) for tokens in tokens_of(case)])
    chunks = rows.chunk(2 * ranks, 1)
    share = torch.cat([chunks[rank], chunks[2 * ranks - 1 - rank]], 1) if ranks > 1 else rows
    batch = _batch(case, share)
    return MicroBatch(batch.call, {**batch.samples, "max_seq_lens": [length] * len(TOTAL)})


def _batch(case: Case, tokens: Tensor, **more: Any) -> MicroBatch:
    positions = torch.arange(tokens.shape[1]).expand(tokens.shape).contiguous()
    call = {"input_ids": tokens, "position_ids": positions, "attention_mask": None, **more}
    samples = {"unconcat_tokens": tokens_of(case), "total_lengths": TOTAL, "response_lengths": RESPONSE}
    return MicroBatch(call, samples)


def wrapped_model(case: Case) -> Any:
    """As the trainers hold it: what it returns is fp32."""
    model = build_model(case)
    return Float16Module(build_config(case), model) if case.dtype == torch.bfloat16 else model


def trained_on(model: Any, output: Any, results: dict[str, list[Tensor]]) -> dict[str, Tensor]:
    """All values, and all gradients of a sum in which each has a weight of its own."""
    model.zero_grad()
    found = {f"{name} {number}": part for name, parts in results.items() for number, part in enumerate(parts)}
    weights = torch.Generator().manual_seed(4)
    loss = 0 * output.sum()
    for part in found.values():
        if part.requires_grad:
            loss = loss + (part * torch.randn(part.shape, generator=weights)).sum()
    torch.autograd.backward(loss)
    return {**{name: part.detach() for name, part in found.items()}, **gradients_of(model)}
