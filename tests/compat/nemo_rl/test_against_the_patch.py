"""NeMo RL's own class patch, from its checkout, and the shim: the same model, the same call, the same numbers.

The flag and `numbers="nemo_rl"`, which a migration writes, give them everywhere; Megatron's own are the same in most
places, and test_differences.py has the others.
"""

import inspect
from typing import Any

import pytest
import torch
from downstream.checkouts import NEMO_RL, checkouts, nemo_rl_patch
from harness import run_on_ranks
from harness.faithful import inputs_for
from harness.models import Case, batch_of, build_model, start_world
from harness.oracle import gradients_of
from harness.rounding import assert_agree, assert_close
from torch import Tensor

from mcore_unpatch.compat.nemo_rl import (
    linear_ce_fusion_kwargs,
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


def values_and_gradients(model: Any, **call: Any) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    log_probs = model(**call)
    weights = torch.randn(log_probs.shape, generator=torch.Generator().manual_seed(3))
    (log_probs * weights).sum().backward()
    return log_probs.detach(), gradients_of(model)


def assert_same(ours: tuple[Tensor, dict[str, Tensor]], theirs: tuple[Tensor, dict[str, Tensor]]) -> None:
    """In bf16 the patch adds up the weight's gradient in bf16, chunk after chunk: its error is a few roundings more."""
    assert ours[0].dtype == theirs[0].dtype
    dtype = next(iter(theirs[1].values())).dtype
    assert_close(ours[0], theirs[0], dtype)
    assert_agree(ours[1], theirs[1], dtype)
    learns = {name: gradient.abs().max() > 0 for name, gradient in theirs[1].items() if "weight" in name}
    assert all(learns[name] is not name.startswith("mtp.") for name in learns), learns


def reads_the_layers_weight_alone(utils: Any) -> bool:
    """0.6.0 is handed the shared embedding of a tied model and does not use it: such models crash there."""
    return "output_weight" in inspect.signature(utils.from_parallel_hidden_states_to_logprobs).parameters


def _same_as_the_patch(case: Case, checkout: str) -> None:
    start_world(case)
    model, call = build_model(case), call_of(case)
    with nemo_rl_patch(checkout, CHUNK) as utils:
        if case.tied and reads_the_layers_weight_alone(utils):
            with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'T'"):
                model(**call, **FLAG)
            return
        theirs = values_and_gradients(model, **call, **FLAG)
    assert theirs[0].shape == (call["labels"].shape[0], call["labels"].shape[1] - 1)
    patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=CHUNK)
    try:
        with_flag = build_model(case)
    finally:
        unpatch_gpt_model_forward_for_linear_ce_fusion()
    assert_same(values_and_gradients(with_flag, **call, **FLAG), theirs)
    kept = linear_ce_fusion_kwargs(model, chunk_size=CHUNK, numbers="nemo_rl")
    assert_same(values_and_gradients(model, **call, **kept), theirs)
    if case in SAME:
        assert_same(values_and_gradients(model, **call, **linear_ce_fusion_kwargs(model, chunk_size=CHUNK)), theirs)
    assert model.config.mtp_num_layers == (case.mtp or None)


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


@pytest.mark.parametrize("checkout", checkouts(NEMO_RL))
@pytest.mark.parametrize("case", [*SAME, *KEPT], ids=str)
def test_values_and_every_gradient_are_those_of_the_patch(release: str, case: Case, checkout: str) -> None:
    run_on_ranks(release, case.ranks, _same_as_the_patch, case, checkout)
