"""Calls in NeMo RL's form, and the models they are made on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from harness.faithful import inputs_for
from harness.models import Case, batch_of, build_model
from harness.oracle import gradients_of
from torch import Tensor

from mcore_unpatch.compat.nemo_rl import (
    patch_gpt_model_forward_for_linear_ce_fusion,
    unpatch_gpt_model_forward_for_linear_ce_fusion,
)

CHUNK = 5
FLAG = {"return_logprobs_for_linear_ce_fusion": True}


def call_of(case: Case) -> dict[str, Any]:
    """The call as NeMo RL makes it: the labels are the tokens themselves."""
    batch = inputs_for(case) if case.packed else batch_of(case)
    packed = {"packed_seq_params": batch["packed_seq_params"]} if case.packed else {}
    return {
        **packed,
        "input_ids": batch["input_ids"],
        "position_ids": batch["position_ids"],
        "attention_mask": None,
        "labels": batch["input_ids"],
    }


@contextmanager
def patched(chunk_size: int = CHUNK) -> Iterator[None]:
    """Models that are built in the block take the flag."""
    patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=chunk_size)
    try:
        yield
    finally:
        unpatch_gpt_model_forward_for_linear_ce_fusion()


def with_the_flag(case: Case) -> Any:
    """A model that takes the flag."""
    with patched():
        return build_model(case)


def values_and_gradients(model: Any, **call: Any) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    log_probs = model(**call)
    weights = torch.randn(log_probs.shape, generator=torch.Generator().manual_seed(3))
    (log_probs * weights).sum().backward()
    return log_probs.detach(), gradients_of(model)


SAME = [
    Case(),
    Case(tied=True),
    Case(query_groups=2, bias=True, vocab=101, sequence=13),
    Case(tp=2, sequence_parallel=True),
    Case(tp=2, sequence_parallel=True, tied=True),
    Case(recompute=True),
    Case(dtype=torch.bfloat16),
    Case(dtype=torch.bfloat16, tp=2, sequence_parallel=True),
]

# Where Megatron's numbers are others: MuP's scaling, an MTP loss, labels that stay in their sequence.
KEPT = [Case(mup=True), Case(mtp=1), Case(mtp=2, tied=True, mup=True), Case(packed=True, batch=3)]
KEPT += [Case(tp=2, sequence_parallel=True, mtp=1, mup=True)]
