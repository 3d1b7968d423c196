"""The shim against Megatron's default path, also over pipeline stages: what the patch did, and what it could not do."""

from inspect import signature
from typing import Any

import pytest
import torch
from downstream.nemo_rl_calls import FLAG, with_the_flag
from harness import on_ranks, on_releases
from harness.faithful import in_float64, lowest_dtype, weighted, with_a_default_path
from harness.models import Case, batch_of
from harness.oracle import Result, assert_no_worse, default_path, gradients_of
from harness.packing import Packer
from harness.rounding import assert_agree, assert_close
from harness.training import scheduled
from megatron.core import parallel_state
from megatron.core.transformer.multi_token_prediction import roll_tensor
from torch import Tensor

from mcore_unpatch.compat import resolve_groups
from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs, whole_but_last
from mcore_unpatch.compat.packing import next_token_labels, zigzag_split


def inputs_of(case: Case) -> dict[str, Any]:
    """This rank's share of a call as NeMo RL makes it: the labels are the tokens, the loss mask is the tokens'."""
    batch = batch_of(case)
    rank = parallel_state.get_context_parallel_rank()
    tokens = {"input_ids": batch["input_ids"], "labels": batch["input_ids"], "loss_mask": batch["loss_mask"]}
    if not case.packed:
        tokens["position_ids"] = batch["position_ids"]
        local = {name: zigzag_split(value, case.cp, rank).contiguous() for name, value in tokens.items()}
        return {**local, "attention_mask": None}
    lengths = torch.tensor([case.sequence - 5 * i for i in range(case.batch)])
    packer = Packer(torch.arange(case.sequence) < lengths[:, None], tp_size=case.tp, cp_size=case.cp, cp_rank=rank)
    row = {name: packer.pack(value) for name, value in tokens.items()}
    row["position_ids"] = packer.position_ids
    return {**row, "packed_seq_params": packer.packed_seq_params(), "attention_mask": None}


def default_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """The same call for the default path, which wants labels and loss mask of the next token for its MTP loss."""
    how = {"shifts": -1, "dims": -1, "cp_group": parallel_state.get_context_parallel_group()}
    how["packed_seq_params"] = inputs.get("packed_seq_params")
    several = "tensors" in signature(roll_tensor).parameters  # on Megatron's dev branch
    names = ("labels", "loss_mask")
    return inputs | {name: roll_tensor([inputs[name]] if several else inputs[name], **how)[0] for name in names}


BF16 = torch.bfloat16
CALLS = [
    (Case(), {}),
    (Case(tp=2, sequence_parallel=True, tied=True), {}),
    (Case(packed=True, batch=3), {}),
    (Case(mtp=1), {}),
    (Case(hybrid=True), {}),
    (Case(cp=2), {}),
    (Case(tp=2), {}),
    (Case(cp=2), {"cp_gradient": "own"}),
    (Case(packed=True, batch=3, cp=2), {"cp_gradient": "own", "entropy": True, "temperature": 0.7}),
    (Case(), {"temperature": 1.7, "entropy": True}),
    (Case(mup=True), {}),
    (Case(mtp=2, tied=True), {}),
    (Case(mtp=1, cp=2), {}),
    (Case(dtype=BF16), {}),
    (Case(dtype=BF16, head_dtype=torch.float32), {}),
    (Case(hybrid=True, mtp=1), {}),
    (Case(tp=2, pp=1, cp=2, sequence_parallel=True), {}),
]


@pytest.mark.parametrize(("release", "case", "options"), on_releases(CALLS, older=6), ids=str)
@on_ranks
def test_values_and_gradients_are_those_of_the_default_path(case: Case, model: Any, options: dict[str, Any]) -> None:
    inputs = inputs_of(case)
    packed = inputs.get("packed_seq_params")
    cp_group = resolve_groups(model).cp
    labels = next_token_labels(inputs["input_ids"], packed_seq_params=packed, cp_group=cp_group)

    def loss_of(log_probs: Tensor, entropy: Tensor) -> Tensor:
        """The loss of the whole, of which each rank holds the part that its own positions make."""
        entropy = entropy * (labels >= 0)  # nothing follows the last token of a sequence
        whole = [whole_but_last(x, packed, cp_group, "own") for x in (log_probs, entropy)]
        return weighted(*whole) if options.get("entropy") else weighted(whole[0], 0 * whole[1])

    def hooked(model: Any) -> Result:
        model.zero_grad()
        out = model(**inputs, **linear_ce_fusion_kwargs(model, chunk_size=3, **options))
        log_probs, entropy = (out.log_probs, out.entropy) if options.get("entropy") else (out, torch.zeros_like(out))
        loss = weighted(log_probs, entropy)
        if options.get("cp_gradient", "summed") == "summed":
            loss = loss / case.cp
        torch.autograd.backward(loss)
        return Result(log_probs.detach(), entropy.detach(), loss.detach(), gradients_of(model))

    def default(model: Any) -> Result:
        result = default_path(model, default_inputs(inputs), labels, options.get("temperature", 1.0), loss_of)
        result.log_probs, result.entropy = (
            whole_but_last(x, packed, cp_group, "own") for x in (result.log_probs, result.entropy * (labels >= 0))
        )
        result.entropy *= bool(options.get("entropy"))
        return result

    ours, truth = hooked(model), default(in_float64(case, model))
    rows = (1, inputs["input_ids"].shape[1] * case.cp - 1) if case.packed else (case.batch, case.sequence - 1)
    assert ours.log_probs.shape == rows
    assert_no_worse(ours, default(with_a_default_path(case, model)), truth, lowest_dtype(case))


def run(case: Case, model: Any, flagged: bool) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Losses and gradients of Megatron's schedule, with the flag or from Megatron's own output stage."""

    def forward_step(data: Any, chunk: Any) -> Any:
        tokens, positions = next(data)

        def finish(output: Tensor) -> Any:
            assert output.shape == (case.batch, case.sequence - flagged)
            log_probs = output if flagged else -output[:, :-1]
            weights = torch.randn(log_probs.shape, generator=torch.Generator().manual_seed(3))
            loss = (log_probs * weights).mean()
            return loss, {"loss": loss.detach()}

        if flagged:
            fusion = linear_ce_fusion_kwargs(chunk) if case.mtp else FLAG  # which leaves out MTP
            return chunk(tokens, positions, None, labels=tokens, **fusion), finish
        mask = torch.ones_like(tokens).index_fill(1, torch.tensor([case.sequence - 1]), 0)
        return chunk(tokens, positions, None, labels=tokens.roll(-1, 1), loss_mask=mask), finish

    batches = [batch_of(case, seed) for seed in range(3)]
    calls = [(batch["input_ids"], batch["position_ids"]) for batch in batches]
    return [result["loss"] for result in scheduled(case, model, forward_step, calls)], gradients_of(model)


@pytest.mark.parametrize("case", [Case(pp=2), Case(pp=2, tied=True, mtp=1)], ids=str)
@on_ranks
def test_losses_and_gradients_are_those_of_the_default_path(case: Case) -> None:
    model = with_the_flag(case)
    losses, gradients = run(case, model, flagged=True)
    expected_losses, expected = run(case, model, flagged=False)
    assert len(losses) == (3 if parallel_state.is_pipeline_last_stage() else 0)
    for loss, expected_loss in zip(losses, expected_losses, strict=True):
        assert_close(loss, expected_loss)
    assert_agree(gradients, expected)
    assert any(gradient.abs().max() > 1e-4 for gradient in expected.values())
