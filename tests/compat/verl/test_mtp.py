"""The MTP shim by itself: its switches, its return values, recompute, and what it refuses."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest
import torch
from downstream.comparing import Run, assert_same, run
from downstream.verl import verl_files
from harness import on_ranks
from harness.models import Case, build_model
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper, MultiTokenPredictionLayer

from mcore_unpatch.compat import HookError
from mcore_unpatch.compat.hook.call import LegacyPatchError
from mcore_unpatch.compat.verl import installed
from mcore_unpatch.compat.verl.model_forward_fused import patch_fused_forward, unpatch_fused_forward
from mcore_unpatch.compat.verl.mtp_patch import (
    patch_mtp_layer_checkpointed_forward,
    patch_mtp_layer_get_embeddings,
    patch_postprocess,
    unpatch_mtp_layer_checkpointed_forward,
    unpatch_mtp_layer_get_embeddings,
    unpatch_postprocess,
)

DECODER, HEAD, EMBEDDING = "decoder.layers.0.mlp.linear_fc1.weight", "output_layer.weight", "embedding.word_embeddings"


def _logits(model: Any, inputs: dict[str, Any]) -> Run:
    return run(model, lambda: {"logits": model(**inputs)})


@on_ranks(Case(mtp=1))
def test_without_labels_there_is_no_mtp_even_where_megatron_would_make_labels_up(model: Any, inputs: Any) -> None:
    inputs |= {"labels": None, "loss_mask": None}
    default = _logits(model, inputs)
    derived = bool(default.logged)
    assert derived is hasattr(model.config, "mtp_detach_heads")  # both came with 0.19
    patch_postprocess(model)
    mine = _logits(model, inputs)
    assert not mine.logged
    assert torch.equal(mine.results["logits"], default.results["logits"])
    assert all(value.abs().max() == 0 for name, value in mine.gradients.items() if name.startswith("mtp."))
    mine.assert_moved(default, DECODER, derived)
    by_position = model(inputs["input_ids"], inputs["position_ids"], None, None, None)
    assert torch.equal(by_position, mine.results["logits"])
    assert model.mtp_process
    assert model.config.mtp_num_layers == 1
    with pytest.raises(Exception):  # noqa: B017 a forward that fails leaves nothing behind either
        model(None, None, None, labels=None)
    model.decoder.register_forward_pre_hook(_interrupt)
    with pytest.raises(KeyboardInterrupt):
        model(**inputs)
    unpatch_postprocess(model)  # PyTorch ran no hook of ours after the interrupt
    assert (model.mtp_process, model.config.mtp_num_layers) == (True, 1)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@on_ranks(Case(mtp=1))
def test_an_interrupted_forward_leaves_the_next_one_its_mtp(model: Any, inputs: Any) -> None:
    """PyTorch runs no hook after a KeyboardInterrupt, so that nobody tidies up before the next call."""
    patch_postprocess(model)
    expected = _logits(model, inputs)
    assert expected.logged

    stop = model.decoder.layers[1].register_forward_pre_hook(_interrupt)
    with pytest.raises(KeyboardInterrupt):
        model(**{**inputs, "labels": None})
    stop.remove()
    assert_same(_logits(model, inputs), expected)
    inside, leave = threading.Event(), threading.Event()

    def wait_inside(module: Any, args: Any) -> None:
        inside.set()
        leave.wait(9)

    stop = model.decoder.layers[1].register_forward_pre_hook(wait_inside)
    with ThreadPoolExecutor(1) as other:
        running = other.submit(lambda: model(**{**inputs, "labels": None}))
        assert inside.wait(9)
        stop.remove()
        try:
            with pytest.raises(HookError, match="another thread is in a forward of this model"):
                model(**inputs)
        finally:
            leave.set()
        running.result()
    MTPLossLoggingHelper.tracker.clear()
    assert_same(_logits(model, inputs), expected)


@pytest.mark.parametrize("case", [Case(mtp=1), Case(mtp=2, tied=True), Case(mtp=1, tp=2)], ids=str)
@on_ranks
def test_whether_the_mtp_loss_updates_the_lm_head_is_one_switch(case: Case, model: Any, inputs: Any) -> None:
    head = EMBEDDING + ".weight" if case.tied else HEAD
    patch_postprocess(model)
    patch_mtp_layer_get_embeddings(model)
    with_head = _logits(model, inputs)
    plain = _logits(model, inputs | {"labels": None})
    patch_postprocess(model, mtp_updates_lm_head=False)
    without = _logits(model, inputs)
    assert with_head.moved(plain, head) > 1e-4
    without.assert_moved(plain, head, False)
    without.assert_moved(plain, DECODER, False)
    without.assert_moved(with_head, "mtp.layers.0.eh_proj.weight", False)
    assert without.logged.keys() == with_head.logged.keys()
    unpatch_postprocess(model)
    assert not model.output_layer._forward_pre_hooks


@on_ranks(Case(mtp=1))
def test_megatrons_own_field_means_the_same_and_keeps_the_lm_head_out(model: Any, inputs: Any) -> None:
    if not hasattr(model.config, "mtp_detach_heads"):
        return  # 0.18
    patch_postprocess(model, mtp_updates_lm_head=False)
    assert patch_mtp_layer_get_embeddings(model)
    hooks = _logits(model, inputs)
    assert unpatch_mtp_layer_get_embeddings(model)
    model.config.mtp_detach_heads = True
    assert_same(_logits(model, inputs), hooks)
    with pytest.warns(UserWarning, match="has no effect"):
        patch_postprocess(model)


@pytest.mark.parametrize("padding_mask", [False, True], ids=["no mask", "padding mask"])
@on_ranks(Case(mtp=2))
def test_full_recompute_works_on_both_releases(model: Any, inputs: Any, padding_mask: bool) -> None:
    twin = build_model(Case(mtp=2, recompute=True))
    if padding_mask:
        inputs["padding_mask"] = torch.zeros(inputs["input_ids"].shape, dtype=torch.bool)
    for one in (model, twin):
        patch_postprocess(one)
        patch_mtp_layer_get_embeddings(one)
    needed = "padding_mask" not in MultiTokenPredictionLayer._checkpointed_forward.__code__.co_varnames
    names = list(twin.state_dict())
    if needed:
        with pytest.raises(HookError, match="patch_mtp_layer_checkpointed_forward"):
            twin(**inputs)
    assert patch_mtp_layer_checkpointed_forward(twin) is needed
    assert not patch_mtp_layer_checkpointed_forward(twin)
    assert list(twin.state_dict()) == names
    masks: list[Any] = []
    for layer in twin.mtp.layers:
        layer.mtp_model_layer.register_forward_pre_hook(
            lambda layer, args, kwargs: masks.append(kwargs["padding_mask"]), with_kwargs=True
        )
    assert_same(_logits(twin, inputs), _logits(model, inputs))
    assert len(masks) == 4  # forward and again in the backward, at each depth
    assert all((mask is not None) is padding_mask for mask in masks)
    assert unpatch_mtp_layer_checkpointed_forward(twin) is needed
    assert not unpatch_mtp_layer_checkpointed_forward(twin)
    assert all(type(layer) is MultiTokenPredictionLayer for layer in twin.mtp.layers)


@on_ranks(Case(mtp=2))
def test_return_values_and_doing_things_twice(model: Any, inputs: Any) -> None:
    before = _logits(model, inputs)
    for _ in range(2):
        assert patch_postprocess(model) is None
    assert patch_mtp_layer_get_embeddings(model) is True
    assert patch_mtp_layer_get_embeddings(model) is False
    assert unpatch_mtp_layer_get_embeddings(model) is True
    assert unpatch_mtp_layer_get_embeddings(model) is False
    for _ in range(2):
        assert unpatch_postprocess(model) is None
    assert_same(_logits(model, inputs), before)
    for module in model.modules():
        assert not module._forward_pre_hooks
        assert not module._forward_hooks
    plain = build_model(Case())
    assert patch_mtp_layer_get_embeddings(plain) is False
    assert patch_mtp_layer_checkpointed_forward(plain) is False


NOTHING_THERE: dict[Any, Any] = {
    **dict.fromkeys((patch_postprocess, unpatch_postprocess, patch_fused_forward, unpatch_fused_forward)),
    **dict.fromkeys((patch_mtp_layer_get_embeddings, unpatch_mtp_layer_get_embeddings), False),
    **dict.fromkeys((patch_mtp_layer_checkpointed_forward, unpatch_mtp_layer_checkpointed_forward), False),
}


@pytest.mark.parametrize("function", NOTHING_THERE, ids=lambda function: function.__name__)
def test_a_stage_without_a_language_model_is_left_alone(function: Any) -> None:
    with pytest.warns(UserWarning, match="Linear contains no Megatron language model; nothing was changed"):
        assert function(torch.nn.Linear(1, 1)) is NOTHING_THERE[function]


@on_ranks(Case(mtp=1))
def test_a_model_that_is_still_patched_is_refused_with_the_name_of_the_patch(model: Any, verl_091: str) -> None:
    with verl_files(verl_091) as files:
        theirs, fused = files("mtp_patch"), files("model_forward_fused")
        theirs.patch_postprocess(model)
        for patch in (patch_postprocess, patch_fused_forward):
            with pytest.raises(LegacyPatchError, match=r"verl\.models\.mcore\.mtp_patch\._megatron_gptmodel_post"):
                patch(model)
        theirs.unpatch_postprocess(model)
        patch_postprocess(model)
        unpatch_postprocess(model)
        theirs.patch_mtp_layer_get_embeddings(model)
        with pytest.raises(LegacyPatchError, match=r"mtp_patch\._patched_get_embeddings_for_detach"):
            patch_mtp_layer_get_embeddings(model)
        theirs.unpatch_mtp_layer_get_embeddings(model)
        model.forward = fused._fused_GPTModel_forward.__get__(model)
        with pytest.raises(LegacyPatchError, match=r"model_forward_fused\._fused_GPTModel_forward"):
            patch_fused_forward(model)


@on_ranks
def test_a_patched_model_is_not_kept_alive() -> None:
    model = build_model(Case(mtp=1))
    patch_postprocess(model)
    patch_fused_forward(model)
    patch_mtp_layer_get_embeddings(model)
    patch_mtp_layer_checkpointed_forward(model)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


@on_ranks(Case(mtp=1, recompute=True), release="0.19.2")
def test_narrow_layers_with_a_padding_mask_are_not_recomputed(model: Any) -> None:
    """Layers as of a Megatron that cannot recompute them by itself."""
    with mock.patch.object(installed, "can_recompute", lambda layer: False):
        assert patch_mtp_layer_checkpointed_forward(model) is True
    layer = model.mtp.layers[0]
    for narrow in ("fp8", "fp4"):
        layer.config.fp8 = layer.config.fp4 = None
        setattr(layer.config, narrow, "hybrid")
        with pytest.raises(HookError, match="cannot recompute an MTP layer with a padding mask in fp8 or fp4; upgrade"):
            layer._checkpointed_forward(torch.zeros(1), torch.zeros(1), torch.zeros(1))


@pytest.mark.parametrize("method", ["_get_embeddings", "_checkpointed_forward"])
@on_ranks(Case(mtp=2), release="0.19.2")
def test_layers_that_are_patched_stay_as_they_are(model: Any, method: str) -> None:
    setattr(model.mtp.layers[1], method, _interrupt)
    with pytest.raises(LegacyPatchError, match="_interrupt"):
        patch_mtp_layer_get_embeddings(model)
    cannot = mock.patch.object(installed, "can_recompute", lambda layer: False)
    with cannot, pytest.raises(LegacyPatchError, match="_interrupt"):
        patch_mtp_layer_checkpointed_forward(model)
    assert {type(layer) for layer in model.mtp.layers} == {MultiTokenPredictionLayer}
