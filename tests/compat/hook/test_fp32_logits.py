"""Logits from a product in fp32, beside a model whose head is kept in fp32: the same bits, gradients included."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case, batch_of, build_model
from harness.oracle import gradients_of, main_logits
from harness.rounding import assert_agree
from torch import Tensor

from mcore_unpatch.compat import HookError, LogProbsAndEntropy, attach, fp32_logits

BF16 = torch.bfloat16
HEAD = "output_layer.weight"


def _logits_and_gradients(case: Case, model: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """With labels, so that MTP layers call the head too."""
    model.zero_grad()
    batch = batch_of(case)
    inputs = {name: batch[name] for name in ("input_ids", "position_ids", "labels")} | {"attention_mask": None}
    logits = main_logits(model, inputs)
    torch.autograd.backward(model(**inputs).sum())
    return logits.detach(), gradients_of(model)


def _with_an_fp32_head(case: Case) -> Any:
    """The truth: Megatron's own path, with the head's parameters in fp32."""
    model = build_model(case)
    weight = model.shared_embedding_or_output_weight()

    def cast(layer: Any, args: Any, given: dict[str, Any]) -> Any:
        (hidden, *_), given = args or (given["input_"],), {name: given[name] for name in given if name != "input_"}
        return (hidden.float(),), given | {"weight": weight.float() if case.tied else None}

    model.output_layer.register_forward_pre_hook(cast, with_kwargs=True)
    if not case.tied:
        model.output_layer.float()
    return model


CASES = [Case(dtype=BF16), Case(dtype=BF16, tied=True), Case(dtype=BF16, tp=2, sequence_parallel=True)]


@pytest.mark.parametrize("case", CASES, ids=str)
@on_ranks
def test_logits_and_gradients_are_those_of_an_fp32_head(case: Case) -> None:
    logits, gradients = _logits_and_gradients(case, _with_an_fp32_head(case))
    rounded, _ = _logits_and_gradients(case, build_model(case))
    model = build_model(case)
    handle = fp32_logits(model)
    new_logits, new_gradients = _logits_and_gradients(case, model)
    assert new_logits.dtype is torch.float32
    assert torch.equal(new_logits, logits)
    assert not torch.equal(new_logits, rounded.float())
    assert new_gradients.keys() == gradients.keys()
    for name, gradient in new_gradients.items():
        assert gradient.dtype is BF16
        assert torch.equal(gradient, gradients[name].to(BF16)), name
    handle.remove()
    assert torch.equal(_logits_and_gradients(case, model)[0], rounded)


@on_ranks(Case(dtype=BF16, mtp=1))
def test_mtp_layers_positions_and_what_is_refused(case: Case, model: Any) -> None:
    plain, _ = _logits_and_gradients(case, model)
    fp32_logits([model])
    seen: list[torch.dtype] = []
    model.output_layer.register_forward_hook(lambda layer, args, output: seen.append(output[0].dtype))
    logits, gradients = _logits_and_gradients(case, model)
    assert set(seen) == {torch.float32}  # of the MTP layer and of the model
    assert not torch.equal(logits, plain.float())
    assert gradients[HEAD].abs().max() > 0
    by_position, _ = model.output_layer(torch.ones(2, 1, 16, dtype=BF16), model.output_layer.weight, None)
    assert by_position.dtype is torch.float32
    fusing = build_model(Case())
    fusing.output_layer.gradient_accumulation_fusion = True
    with pytest.raises(HookError, match="gradient_accumulation_fusion = False first"):
        fp32_logits(fusing)
    deferring = build_model(Case())
    deferring.config.defer_embedding_wgrad_compute = True
    with pytest.raises(HookError, match="defer_embedding_wgrad_compute"):
        fp32_logits(deferring)
    assert not deferring.output_layer._forward_pre_hooks


@pytest.mark.parametrize("case", [*CASES, Case(dtype=BF16, hybrid=True), Case(dtype=BF16, hybrid=True, mtp=1)], ids=str)
@pytest.mark.parametrize("first", ["fp32", "attach"])
@on_ranks
def test_log_probs_beside_fp32_logits_are_those_of_these_logits(
    first: str, case: Case, model: Any, inputs: Any
) -> None:
    """Whichever is installed first. Without it they are the same to the bit: they never rounded logits."""

    def found() -> dict[str, Tensor]:
        model.zero_grad()
        out = model(**inputs)
        torch.autograd.backward(out.log_probs.sum() + out.entropy.sum())
        return {"log_probs": out.log_probs.detach(), "entropy": out.entropy.detach(), **gradients_of(model)}

    with attach(model, LogProbsAndEntropy()):
        alone = found()
    installs = [lambda: fp32_logits(model), lambda: attach(model, LogProbsAndEntropy())]
    with installs[first != "fp32"](), installs[first == "fp32"]():
        beside = found()
    if not case.mtp:  # whose loss is that of logits, rounded without it
        assert all(torch.equal(beside[name], value) for name, value in alone.items())
    with fp32_logits(model):
        loss = model(**inputs).detach()
    assert_agree({"log_probs": beside["log_probs"]}, {"log_probs": -loss})
