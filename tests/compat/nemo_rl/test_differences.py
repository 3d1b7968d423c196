"""Where NeMo RL's patch and the shim differ: both are shown, and the shim is the one that is right."""

from typing import Any

import pytest
import torch
from downstream.checkouts import NEMO_RL, checkouts, nemo_rl_patch
from harness import on_ranks, run_on_ranks
from harness.models import Case, batch_of, build_config, build_model, start_world
from harness.oracle import gradients_of
from harness.packing import Packer
from harness.rounding import assert_close
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

from mcore_unpatch.compat import Logits
from mcore_unpatch.compat.hook.call import LegacyPatchError
from mcore_unpatch.compat.nemo_rl import (
    linear_ce_fusion_kwargs,
    patch_gpt_model_forward_for_linear_ce_fusion,
    unpatch_gpt_model_forward_for_linear_ce_fusion,
)

pytestmark = pytest.mark.parametrize("checkout", checkouts(NEMO_RL))
FLAG = {"return_logprobs_for_linear_ce_fusion": True}
CHUNK = 5


def call_of(case: Case) -> dict[str, Any]:
    batch = batch_of(case)
    tokens = batch["input_ids"]
    return {"input_ids": tokens, "position_ids": batch["position_ids"], "attention_mask": None, "labels": tokens}


def true_log_probs(model: Any, call: dict[str, Any]) -> torch.Tensor:
    logits = model(**{**call, "labels": None}).double().log_softmax(-1)
    return logits[:, :-1].gather(-1, call["labels"][:, 1:, None]).squeeze(-1).float()


@on_ranks(Case(tp=2), release="0.19.2")
def test_tensor_parallelism_without_sequence_parallelism(case: Case, model: Any, checkout: str) -> None:
    """The patch gathers hidden states that nobody split; its backward fails on the doubled sequence."""
    call = call_of(case)
    with nemo_rl_patch(checkout, CHUNK), pytest.raises(RuntimeError, match="broadcast shape"):
        model(**call, **FLAG).sum().backward()
    model(**call, **linear_ce_fusion_kwargs(model)).sum().backward()


@on_ranks(Case(mup=True), release="0.19.2")
def test_mup_scales_the_logits(case: Case, model: Any, checkout: str) -> None:
    """The patch skips Megatron's scaling of the logits."""
    call = call_of(case)
    expected = true_log_probs(model, call)
    with nemo_rl_patch(checkout, CHUNK):
        theirs = model(**call, **FLAG)
    assert (theirs - expected).abs().max() > 0.01
    assert_close(model(**call, **linear_ce_fusion_kwargs(model)), expected)


@on_ranks(Case(mtp=1), release="0.19.2")
def test_mtp_layers_learn(case: Case, model: Any, checkout: str) -> None:
    """The patch leaves out the MTP block, so that its layers never learn."""
    call = call_of(case)

    def mtp_gradient() -> float:
        return sum(g.norm().item() for name, g in gradients_of(model).items() if name.startswith("mtp."))

    with nemo_rl_patch(checkout, CHUNK):
        model(**call, **FLAG).sum().backward()
    assert mtp_gradient() == 0
    model(**call, **linear_ce_fusion_kwargs(model)).sum().backward()
    assert mtp_gradient() > 1e-3


@on_ranks(Case(packed=True, batch=3), release="0.19.2")
def test_no_label_crosses_the_border_of_a_packed_sequence(case: Case, model: Any, checkout: str) -> None:
    """The patch rolls the whole row: the last token of each sequence predicts the first of the next."""
    tokens = batch_of(case)["input_ids"]
    lengths = [16, 11, 6]
    packer = Packer(torch.arange(16) < torch.tensor(lengths)[:, None])
    row = packer.pack(tokens)
    call = {"input_ids": row, "labels": row, "attention_mask": None}
    call |= {"position_ids": packer.position_ids, "packed_seq_params": packer.packed_seq_params()}
    with nemo_rl_patch(checkout, CHUNK):
        theirs = model(**call, **FLAG)
    ours = model(**call, **linear_ce_fusion_kwargs(model))
    borders = [15, 26]
    inside = [i for i in range(32) if i not in borders]
    assert ours.shape == theirs.shape == (1, 32)
    assert_close(ours[:, inside], theirs[:, inside])
    assert (theirs[:, borders] < -1).all()
    assert (ours[:, borders] == 0).all()


@on_ranks(Case(cp=2), release="0.19.2")
def test_context_parallelism_is_refused_there(case: Case, model: Any, checkout: str) -> None:
    """Here it is served: see test_against_the_default_path and test_context_parallel."""
    call = call_of(case)
    refused = pytest.raises(AssertionError, match="Context parallelism is not supported")
    with nemo_rl_patch(checkout, CHUNK), refused:
        model(**call, **FLAG)


@on_ranks(release="0.19.2")
def test_other_users_of_the_hook(case: Case, model: Any, checkout: str) -> None:
    """A class with the patch rejects every caller that passes a processor."""
    call = call_of(case)
    with nemo_rl_patch(checkout, CHUNK), pytest.raises(TypeError, match="output_processor"):
        model(**call, output_processor=Logits())
    linear_ce_fusion_kwargs(model)
    model(**call, output_processor=Logits())


@on_ranks(release="0.19.2")
def test_a_model_that_is_still_patched_is_refused_by_the_patchs_name(case: Case, model: Any, checkout: str) -> None:
    call = call_of(case)
    kwargs = linear_ce_fusion_kwargs(model)
    name = r"nemo_rl\.distributed\.model_utils\._gpt_forward_with_linear_ce_fusion"
    with nemo_rl_patch(checkout, CHUNK):
        with pytest.raises(LegacyPatchError, match=name):
            linear_ce_fusion_kwargs(model)
        with pytest.raises(LegacyPatchError, match=name):
            model(**call, **kwargs)
        with pytest.raises(LegacyPatchError, match=name):
            model(**call, **FLAG)  # served by the shim: it does not fall through to the patch
    patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=CHUNK)
    try:
        with nemo_rl_patch(checkout, CHUNK), pytest.raises(LegacyPatchError, match=name):
            build_model(case)
    finally:
        unpatch_gpt_model_forward_for_linear_ce_fusion()


def _overlapped(checkout: str, legacy: bool) -> list[float]:
    case = Case(dp=2)
    start_world(case)
    model = build_model(case)
    # The head in a bucket of its own, gathered during the forward.
    buckets = {"overlap_grad_reduce": True, "overlap_param_gather": True, "bucket_size": 1}
    ddp_config = DistributedDataParallelConfig(use_distributed_optimizer=True, **buckets)
    ddp = DistributedDataParallel(build_config(case), ddp_config, model)
    config = OptimizerConfig(
        optimizer="adam", lr=0.01, use_distributed_optimizer=True, overlap_param_gather=True, clip_grad=0.0
    )
    optimizer = get_megatron_optimizer(config, [ddp])
    losses = []
    for _ in range(4):
        ddp.zero_grad_buffer()
        optimizer.zero_grad()
        flag = FLAG if legacy else linear_ce_fusion_kwargs(ddp, chunk_size=CHUNK)
        loss = -ddp(**call_of(case), **flag).mean()
        torch.autograd.backward(loss)
        ddp.finish_grad_sync()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _overlap_there_and_here(checkout: str) -> None:
    with nemo_rl_patch(checkout, CHUNK), pytest.raises(AssertionError):
        _overlapped(checkout, legacy=True)


def test_overlap_param_gather_trips_megatrons_assertion_there(checkout: str) -> None:
    """The patch reads a weight whose gather nobody waits for; NeMo RL forbids the pair. Here the gather is awaited."""
    run_on_ranks("0.19.2", 2, _overlap_there_and_here, checkout)
    first, *_, last = run_on_ranks("0.19.2", 2, _overlapped, checkout, False)[0]
    assert last < first - 0.01
