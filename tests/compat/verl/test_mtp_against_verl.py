"""veRL's own MTP patch and the shim, on the same model: logits, every gradient, and what the MTP tracker logged."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from downstream.comparing import Run, assert_same, run
from downstream.verl import verl_files
from harness import on_ranks
from harness.models import Case
from harness.rounding import assert_close

from mcore_unpatch.compat.verl import mtp_patch as ours

WHOLE = [
    Case(mtp=2),
    Case(mtp=2, tied=True),
    Case(mtp=1, packed=True),
    Case(mtp=1, tp=2),
    Case(mtp=2, cp=2, packed=True),
]
DETACHED = [
    Case(mtp=1),
    Case(mtp=2),
    Case(mtp=2, repeated=True),
    Case(mtp=1, tied=True),
    Case(mtp=1, tp=2),
    Case(mtp=1, cp=2, packed=True),
]
DECODER, FIRST_DEPTH = "decoder.layers.0.mlp.linear_fc1.weight", "mtp.layers.0.eh_proj.weight"


def _logits(model: Any, inputs: dict[str, Any]) -> Run:
    return run(model, lambda: {"logits": model(**inputs)})


def _legacy(folder: str, model: Any, inputs: dict[str, Any], detach: bool) -> Run:
    with verl_files(folder) as files:
        theirs = files("mtp_patch")
        theirs.patch_postprocess(model)
        if detach:
            assert theirs.patch_mtp_layer_get_embeddings(model)
        try:
            return _logits(model, inputs)
        finally:
            theirs.unpatch_postprocess(model)
            theirs.unpatch_mtp_layer_get_embeddings(model)


def _shim(model: Any, inputs: dict[str, Any], detach: bool, every_depth: bool = False, **options: Any) -> Run:
    ours.patch_postprocess(model, **options)
    if detach:
        assert ours.patch_mtp_layer_get_embeddings(model, every_depth=every_depth)
    try:
        return _logits(model, inputs)
    finally:
        ours.unpatch_postprocess(model)
        ours.unpatch_mtp_layer_get_embeddings(model)


@pytest.mark.parametrize(
    ("case", "detach"), [*((case, False) for case in WHOLE), *((case, True) for case in DETACHED)], ids=str
)
@on_ranks
def test_the_same_as_verl_with_labels_and_without(
    case: Case, detach: bool, model: Any, inputs: Any, verl_091: str
) -> None:
    theirs = _legacy(verl_091, model, inputs, detach)
    mine = _shim(model, inputs, detach)
    assert theirs.logged
    assert_same(mine, theirs)
    without = inputs | {"labels": None, "loss_mask": None}
    plain = _legacy(verl_091, model, without, detach)
    assert not plain.logged
    assert_same(_shim(model, without, detach), plain)
    assert all(value.abs().max() == 0 for name, value in plain.gradients.items() if name.startswith("mtp."))
    theirs.assert_moved(plain, DECODER, not detach)


@on_ranks(Case(mtp=2, repeated=True, recompute=True))
def test_depths_that_share_a_layer_may_recompute(model: Any, inputs: Any) -> None:
    ours.patch_mtp_layer_checkpointed_forward(model)
    recomputed = _shim(model, inputs, detach=True)
    model.config.recompute_granularity = None
    assert_same(_shim(model, inputs, detach=True), recomputed)
    recomputed.assert_moved(_shim(model, inputs, detach=False), DECODER, True)


@pytest.mark.parametrize("version", ["0.7.1"])
@on_ranks(Case(mtp=2))
def test_every_depth_is_cut_where_it_is_asked_for_as_verl_07_did_and_09_does_not(
    model: Any, inputs: Any, verl_091: str, folder: str
) -> None:
    mine, theirs = _shim(model, inputs, True, every_depth=True), _legacy(verl_091, model, inputs, detach=True)
    with verl_files(folder) as files:
        get_embeddings = files("mtp_patch")._patched_get_embeddings_for_detach
    for layer in model.mtp.layers:  # the real function, with the fifth value that this Megatron asks for
        layer._get_embeddings = partial(_with_padding_mask, get_embeddings, layer)
    original = _legacy(verl_091, model, inputs, detach=False)
    for layer in model.mtp.layers:
        del layer._get_embeddings
    assert_same(mine, original)
    mine.assert_moved(theirs, DECODER, False)
    assert mine.moved(theirs, FIRST_DEPTH) > 0.1


def _with_padding_mask(get_embeddings: Any, layer: Any, padding_mask: Any = None, **arguments: Any) -> tuple[Any, ...]:
    input_ids, position_ids, *rest = get_embeddings(layer, **arguments)
    return input_ids, position_ids, padding_mask, *rest


@on_ranks(Case(mtp=2, packed=True))
def test_the_loss_normalisation_factor_of_verl_09(model: Any, inputs: Any, verl_091: str) -> None:
    model.config.calculate_per_token_loss = True
    plain = _shim(model, inputs, detach=False)
    inputs["packed_seq_params"]._verl_mtp_loss_normalization_factor = 2.5
    theirs = _legacy(verl_091, model, inputs, detach=False)
    assert_same(_shim(model, inputs, detach=False), theirs)
    head = "mtp.layers.0.eh_proj.weight"
    assert_close(theirs.gradients[head], 2.5 * plain.gradients[head])
    assert model.config.mtp_loss_scaling_factor == 0.3
    inputs["packed_seq_params"]._verl_mtp_loss_normalization_factor = 0.0
    with pytest.raises(ValueError, match="must be positive"):
        _shim(model, inputs, detach=False)
    assert model.config.mtp_loss_scaling_factor == 0.3
    model.config.calculate_per_token_loss = False  # the mean is Megatron's own: the factor is not looked at
    without = dict(inputs, packed_seq_params=replace(inputs["packed_seq_params"]))
    assert_same(_shim(model, inputs, detach=False), _shim(model, without, detach=False))


@on_ranks(Case(mtp=1, cp=2, packed=True))
def test_the_context_parallel_group_of_the_micro_batch(model: Any, inputs: Any, verl_091: str) -> None:
    static = _shim(model, inputs, detach=True)
    alone = [torch.distributed.new_group([rank]) for rank in range(2)][torch.distributed.get_rank()]
    params = inputs["packed_seq_params"]
    params.local_cp_size, params.cp_group = 1, alone
    # Each rank takes its own row for whole: half the tokens of each sequence.
    params.cu_seqlens_q = params.cu_seqlens_q // 2
    theirs = _legacy(verl_091, model, inputs, detach=True)
    assert_same(_shim(model, inputs, detach=True), theirs)
    assert theirs.moved(static, "mtp.layers.0.eh_proj.weight") > 1e-3
    assert model.pg_collection.cp.size() == 2
    assert all(layer.cp_group.size() == 2 for layer in model.mtp.layers)


@on_ranks(Case(mtp=1, mup=True))
def test_mup_scales_the_logits_where_it_is_asked_for_and_else_as_there(model: Any, inputs: Any, verl_091: str) -> None:
    for one in (inputs, inputs | {"labels": None, "loss_mask": None}):
        with pytest.warns(
            UserWarning, match=r"patch_postprocess keeps veRL's numbers: the logits are not scaled by MuP"
        ):
            kept = _shim(model, one, False)
        assert_same(kept, _legacy(verl_091, model, one, False))
    theirs, mine = _legacy(verl_091, model, inputs, False), _shim(model, inputs, False, numbers="megatron")
    default = model(**inputs | {"labels": None})
    assert_close(mine.results["logits"], default)
    scale = model._scale_logits(torch.ones(()))
    assert scale != 1
    assert_close(theirs.results["logits"] * scale, default)
