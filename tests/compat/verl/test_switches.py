"""Each switch of the veRL shims in both positions, beside others that are on, and what a call then gets."""

from typing import Any
from unittest import mock

import pytest
import torch
from downstream.comparing import run
from downstream.overlap import build_moe_model, micro_batches, no_streams
from harness import on_ranks
from harness.models import Case
from harness.rounding import assert_close
from megatron.core.models.common.model_chunk_schedule_plan import TransformerModelChunkSchedulePlan
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer
from torch import Tensor

from mcore_unpatch.compat import HookError
from mcore_unpatch.compat.hook.call import LegacyPatchError
from mcore_unpatch.compat.verl import installed, mtp_patch
from mcore_unpatch.compat.verl.model_forward_1f1b_overlap import gptmodel_forward_1f1b_overlap
from mcore_unpatch.compat.verl.model_forward_fused import (
    fused_forward_model_engine,
    fused_forward_model_gen,
    patch_fused_forward,
    unpatch_fused_forward,
)

RELEASE = "0.19.2"


def logits_of(model: Any, inputs: dict[str, Any]) -> Any:
    return run(model, lambda: {"logits": model(**inputs)})


@on_ranks(Case(mtp=1), release=RELEASE)
def test_one_shim_is_undone_while_the_other_stays(model: Any, inputs: Any) -> None:
    head = model.output_layer._forward_pre_hooks
    patch_fused_forward(model, numbers="megatron")
    mtp_patch.patch_postprocess(model, mtp_updates_lm_head=False)
    assert head
    mtp_patch.unpatch_postprocess(model)
    assert not head
    assert model(**inputs).log_probs is not None
    mtp_patch.patch_postprocess(model, mtp_updates_lm_head=False)
    mtp_patch.patch_postprocess(model)
    assert not head
    unpatch_fused_forward(model)
    assert torch.is_tensor(model(**inputs))
    mtp_patch.unpatch_postprocess(model)
    assert not model._forward_pre_hooks


def other_layers(model: Any) -> Any:
    """Its MTP layers as of a Megatron whose own cannot recompute; they stay so for the rest of the test."""
    with mock.patch.object(installed, "can_recompute", lambda layer: False):
        assert mtp_patch.patch_mtp_layer_checkpointed_forward(model) is True
        assert mtp_patch.patch_mtp_layer_checkpointed_forward(model) is False
    assert all(isinstance(layer, mtp_patch.RecomputedMtpLayer) for layer in model.mtp.layers)
    return model


@pytest.mark.parametrize("narrow", ["fp8", "fp4"])
@on_ranks(Case(mtp=1, recompute=True), release=RELEASE)
def test_narrow_layers_with_a_padding_mask_are_not_recomputed(model: Any, inputs: Any, narrow: str) -> None:
    layer = other_layers(model).mtp.layers[0]
    setattr(layer.config, narrow, "hybrid")
    with pytest.raises(HookError, match="cannot recompute an MTP layer with a padding mask in fp8 or fp4; upgrade"):
        layer._checkpointed_forward(torch.zeros(1), torch.zeros(1), torch.zeros(1))


def _of_a_patch(*_: Any) -> None:
    raise AssertionError("nobody calls it")


@pytest.mark.parametrize("method", ["_get_embeddings", "_checkpointed_forward"])
@on_ranks(Case(mtp=2), release=RELEASE)
def test_layers_that_are_patched_stay_as_they_are(model: Any, method: str) -> None:
    setattr(model.mtp.layers[1], method, _of_a_patch)
    with pytest.raises(LegacyPatchError, match="_of_a_patch"):
        mtp_patch.patch_mtp_layer_get_embeddings(model)
    cannot = mock.patch.object(installed, "can_recompute", lambda layer: False)
    with cannot, pytest.raises(LegacyPatchError, match="_of_a_patch"):
        mtp_patch.patch_mtp_layer_checkpointed_forward(model)
    assert {type(layer) for layer in model.mtp.layers} == {MultiTokenPredictionLayer}


def packed(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: batch[name] for name in ("input_ids", "position_ids", "attention_mask")}


@pytest.mark.parametrize("positions", [False, True])
@on_ranks(Case(dp=2), release=RELEASE)
def test_a_plan_without_labels_gives_logits(case: Case, positions: bool) -> None:
    with no_streams():
        model, batch = build_moe_model(case), packed(micro_batches(case)[0])
        if positions:
            batch["position_ids"] = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0) * 2
        (found,) = TransformerModelChunkSchedulePlan.run(gptmodel_forward_1f1b_overlap(model, **batch), None)
        expected = fused_forward_model_gen()(model, **batch)
    assert found.shape == (*batch["input_ids"].shape, case.vocab)
    assert_close(found.detach(), expected.detach())


@pytest.mark.parametrize("masked", [False, True])
@on_ranks(Case(dp=2), release=RELEASE)
def test_a_plan_gives_log_probs_where_the_labels_count(case: Case, masked: bool) -> None:
    with no_streams():
        model, batch = build_moe_model(case), micro_batches(case)[0]
        del batch["multi_modal_inputs"]
        batch["labels_mask"] = batch["labels_mask"] if masked else None
        out = TransformerModelChunkSchedulePlan.run(gptmodel_forward_1f1b_overlap(model, **batch), None)
        expected = fused_forward_model_gen()(model, **batch)
    assert len(out) == 1
    assert_close(out[0].detach(), expected["log_probs"].detach())
    counts = batch["labels_mask"] if masked else batch["attention_mask"]
    assert torch.equal(out[0] != 0, counts)


@on_ranks(Case(batch=3), release=RELEASE)
def test_positions_of_the_callers_own(case: Case, model: Any) -> None:
    """Of the batch's shape they are packed with it; others are those of the model's own making."""
    real = torch.arange(case.sequence) >= torch.tensor([[3], [0], [9]])
    ids = torch.arange(3 * case.sequence).view(3, -1) % case.vocab * real
    seen: list[Tensor] = []
    model.register_forward_pre_hook(lambda _, args, kwargs: seen.append(kwargs["position_ids"]), with_kwargs=True)
    own = torch.arange(case.sequence).expand(3, -1)
    for given in (None, own, own[None].expand(3, -1, -1)):
        fused_forward_model_gen()(model, ids, given, real, ids)
    counted = torch.cat([torch.arange(n) for n in (case.sequence - 3, case.sequence, case.sequence - 9)])
    assert [one[0].tolist() for one in seen] == [counted.tolist(), own[real].tolist(), counted.tolist()]


class Vision(torch.nn.Module):
    """Stands for a vision model: it packs by itself."""

    def __init__(self, language_model: Any) -> None:
        super().__init__()
        self.language_model, self.seen = language_model, {}

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **rest: Any) -> Any:
        self.seen = {"attention_mask": attention_mask, "input_ids": input_ids, **rest}
        row = input_ids[attention_mask.bool()][None]
        return self.language_model(row, None, None, packed_seq_params=rest["packed_seq_params"])


@on_ranks(Case(batch=2), release=RELEASE)
def test_vision_models_of_verl_05_and_of_its_engine(case: Case, model: Any) -> None:
    real = torch.arange(case.sequence) >= torch.tensor([[3], [0]])
    ids = torch.arange(2 * case.sequence).view(2, -1) % case.vocab * real
    images = {"pixel_values": torch.ones(2)}
    wrapper = Vision(model)
    found = fused_forward_model_gen(True)(wrapper, ids, ids, real, ids, real, 0.7, images)
    assert torch.equal(wrapper.seen["pixel_values"], images["pixel_values"])
    assert wrapper.seen["position_ids"] is None
    expected = fused_forward_model_gen()(model, ids, None, real, ids, real, 0.7)
    for name in ("log_probs", "entropy"):
        assert_close(found[name].detach(), expected[name].detach())
    rows = torch.nested.nested_tensor([row[keep] for row, keep in zip(ids, real, strict=True)], layout=torch.jagged)
    fused_forward_model_engine(vision_model=True)(wrapper, rows, rows, images, 0.7, False, 0)
    assert wrapper.seen["input_ids"].shape == ids.shape
    assert wrapper.seen["attention_mask"].sum(1).tolist() == real.sum(1).tolist()
    padding = torch.zeros(1, int(real.sum()), dtype=torch.bool)
    seen: dict[str, Any] = {}
    model.register_forward_pre_hook(lambda _, args, kwargs: seen.update(kwargs), with_kwargs=True)
    engine = fused_forward_model_engine()
    engine(model, rows, rows, {}, 0.7, False, 0)
    assert "padding_mask" not in seen
    engine(model, rows, rows, {}, 0.7, False, 0, router_padding_mask=padding)
    assert seen["padding_mask"] is padding


@pytest.mark.parametrize("labels", [True, False])
@on_ranks(Case(batch=2, mup=True), release=RELEASE)
def test_logits_under_mup_are_scaled_by_megatrons_numbers_alone(model: Any, inputs: Any, labels: bool) -> None:
    plain = model(**inputs | {"labels": None})
    given = inputs if labels else inputs | {"labels": None}
    mtp_patch.patch_postprocess(model, numbers="megatron")
    assert_close(model(**given), plain)
    with pytest.warns(UserWarning, match="not scaled by MuP's factor"):
        mtp_patch.patch_postprocess(model)
    unscaled = model(**given)
    ratio = (unscaled / plain).flatten()
    assert_close(ratio, ratio[:1].expand_as(ratio).contiguous())
    assert abs(float(ratio[0]) - 1) > 0.1


@on_ranks(Case(batch=2), release=RELEASE)
def test_a_direct_call_with_verls_numbers_takes_one_row(model: Any, inputs: Any) -> None:
    patch_fused_forward(model)
    with pytest.raises(ValueError, match=r'labels \[2, 16\].*or call patch_fused_forward\(model, numbers="megatron"\)'):
        model(**inputs)
    row = {name: value[:1] if torch.is_tensor(value) else value for name, value in inputs.items()}
    assert model(**row).log_probs.shape == (16,)
