"""Logits from a product in fp32, beside a model whose head is kept in fp32: the same bits, gradients included."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case, batch_of, build_model
from harness.oracle import gradients_of, main_logits
from torch import Tensor

from mcore_unpatch.compat import HookError, fp32_logits

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
    model.output_layer.register_forward_pre_hook(
        lambda layer, args, given: ((args[0].float(),), {**given, "weight": weight.float() if case.tied else None}),
        with_kwargs=True,
    )
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
