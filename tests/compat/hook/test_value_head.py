"""A value head beside veRL's own lines that replace `model.output_layer`: everything equal, to the bit."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import on_ranks, run_on_ranks
from harness.files import from_page
from harness.models import Case, batch_of, build_config, build_model, start_world
from harness.oracle import gradients_of
from harness.pool import INSTALLED
from harness.rounding import assert_close
from harness.training import scheduled, steps, with_an_optimizer
from hook.test_probing import OpenVision
from megatron.core import parallel_state, tensor_parallel
from megatron.core.dist_checkpointing import load, save
from megatron.core.dist_checkpointing.strategies.filesystem_async import get_write_results_queue
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.transformer.module import Float16Module
from torch import Tensor

from mcore_unpatch.compat import (
    HeadInputs,
    HookBypassedError,
    HookError,
    LogProbs,
    UnsupportedHeadError,
    ValueLayer,
    add_value_head,
    call_with_processor,
)
from mcore_unpatch.compat.packing import zigzag_split

ONE_RANK = [Case(), Case(mup=True), Case(hybrid=True), Case(dtype=torch.bfloat16), Case(tied=True)]
CASES = [
    *ONE_RANK,
    Case(tp=2),
    Case(tp=2, sequence_parallel=True),
    Case(tp=2, sequence_parallel=True, hybrid=True),
    Case(cp=2),
    Case(pp=2),
]


def _layer_of(source: str, config: Any) -> torch.nn.Module:
    scope: dict[str, Any] = {"torch": torch, "tensor_parallel": tensor_parallel}
    exec(source, scope)
    torch.manual_seed(3)
    made = scope["LinearForLastLayer"](config.hidden_size, 1, sequence_parallel=config.sequence_parallel)
    layer: torch.nn.Module = made.to(config.params_dtype)
    return layer


def _critic(case: Case, source: str, how: str) -> Any:
    """`legacy`: the output layer replaced; `kept`: the same layer as the value head; `own`: compat's layer."""
    model = build_model(case)
    if how == "legacy":
        if model.post_process:
            model.output_layer = _layer_of(source, model.config)
        return model
    layer = _layer_of(source, model.config)
    add_value_head(model, layer if how == "kept" else None)
    if how == "own" and model.post_process:
        assert isinstance(model.output_layer, ValueLayer)
        model.output_layer.load_state_dict(layer.state_dict())
    return model


def _call(case: Case, seed: int = 0) -> dict[str, Any]:
    batch, rank = batch_of(case, seed), parallel_state.get_context_parallel_rank()
    call = {name: zigzag_split(batch[name], case.cp, rank).contiguous() for name in ("input_ids", "position_ids")}
    return {**call, "attention_mask": None}


def _loss(values: Tensor) -> Tensor:
    return (values.float() * torch.linspace(-1, 1, values.numel()).view_as(values)).sum()


def _values_and_gradients(case: Case, model: Any) -> tuple[list[Tensor], dict[str, Tensor]]:
    values: list[Tensor] = []

    def finish(output: Tensor) -> Any:
        values.append(output.detach().clone())
        return _loss(output), {}

    calls = [_call(case, seed) for seed in range(2)]
    scheduled(case, model, lambda data, chunk: (chunk(**next(data)), finish), calls)
    return values, gradients_of(model)


@pytest.mark.parametrize("case", CASES, ids=str)
@on_ranks
def test_values_and_gradients_are_those_of_the_replaced_layer(case: Case, verl_value_layer: str) -> None:
    expected, gradients = _values_and_gradients(case, _critic(case, verl_value_layer, "legacy"))
    if case.tied:  # the old layer has nothing to do with the LM head, and this one was never built
        assert not any(name.startswith("output_layer.") for name, _ in build_model(case).named_parameters())
    for how in ("kept", "own"):
        model = _critic(case, verl_value_layer, how)
        values, ours = _values_and_gradients(case, model)
        torch.testing.assert_close(values, expected, rtol=0, atol=0)
        torch.testing.assert_close(ours, gradients, rtol=0, atol=0)
        assert sum(gradient.float().norm() for gradient in ours.values()) > 0.1
        if model.post_process:
            assert values[0].shape == (case.batch, case.sequence // case.cp, 1)
            assert values[0].dtype == torch.float32
            assert repr(model)


@pytest.mark.parametrize("case", [Case(vocab=512), Case(vocab=512, tied=True), Case(vocab=512, pp=2)], ids=str)
@on_ranks
def test_no_vocabulary_sized_weight_is_left(case: Case, model: Any) -> None:
    before = weakref.ref(model.output_layer.weight) if model.post_process and not case.tied else None
    add_value_head(model)
    gc.collect()
    assert before is None or before() is None
    vocabulary = [name for name, p in model.named_parameters() if p.shape[0] >= case.vocab // case.tp]
    assert set(vocabulary) <= {"embedding.word_embeddings.weight"} | {
        n for n, _ in model.decoder.named_parameters("decoder")
    }
    names = [name for name, _ in model.named_parameters() if "output_layer" in name]
    assert names == (["output_layer.weight"] if model.post_process else [])


def _train(case: Case, source: str, how: str, overlap: bool) -> tuple[Tensor, dict[str, Any]]:
    ddp, optimizer = with_an_optimizer(case, _critic(case, source, how), overlap)
    inputs = _call(case, seed=parallel_state.get_data_parallel_rank())
    seen = steps(ddp, optimizer, lambda ddp: (ddp(**inputs) - 1).square().mean())
    state = ddp.module.sharded_state_dict()
    found = optimizer.sharded_state_dict(state, metadata={"distrib_optim_sharding_type": "fully_reshardable"})
    return seen, {"model": state, "optimizer": found}


def _places(state: Any) -> dict[str, Any]:
    """Of everything a distributed checkpoint would hold: its name there, and which part of it is this rank's."""
    if isinstance(state, dict):
        return {key: place for value in state.values() for key, place in _places(value).items()}
    if isinstance(state, list):
        return _places(dict(enumerate(state)))
    key = getattr(state, "key", None)
    facts = ("global_shape", "global_offset", "replica_id", "allow_shape_mismatch")
    return {} if key is None else {key: [getattr(state, fact, None) for fact in facts]}


@pytest.mark.parametrize(
    ("case", "overlap"),
    [
        (Case(dp=2), False),
        (Case(dp=2), True),
        (Case(tp=2, sequence_parallel=True), False),
        (Case(dtype=torch.bfloat16), False),
    ],
    ids=str,
)
@on_ranks(release=INSTALLED)
def test_the_distributed_optimizer_trains_it_as_before(case: Case, verl_value_layer: str, overlap: bool) -> None:
    expected, saved = _train(case, verl_value_layer, "legacy", overlap)
    for how in ("kept", "own"):
        seen, ours = _train(case, verl_value_layer, how, overlap)
        torch.testing.assert_close(seen, expected, rtol=0, atol=0)
        assert seen[-1][0] < seen[0][0]
        assert _places(ours) == _places(saved)
        assert any(key.endswith("exp_avg.output_layer.weight") for key in _places(ours))


def _save_and_load(case: Case, other: Case, source: str, folder: str, writer: str, reader: str) -> None:
    get_write_results_queue("fork")  # else the queue's process would import torch anew
    start_world(case)
    model = _critic(case, source, writer)
    expected, _ = _values_and_gradients(case, model)
    save(model.sharded_state_dict(), folder)
    start_world(other)
    model = _critic(other, source, reader)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.load_state_dict(load(model.sharded_state_dict(), folder))
    values, _ = _values_and_gradients(other, model)
    if values and expected:
        assert_close(torch.stack(values), torch.stack(expected))


@pytest.mark.parametrize(
    ("case", "other", "writer", "reader"),
    [
        (Case(tp=2), Case(pp=2), "legacy", "own"),
        (Case(pp=2), Case(tp=2), "own", "legacy"),
        (Case(tied=True), Case(tied=True), "legacy", "own"),
    ],
    ids=str,
)
def test_checkpoints_are_those_of_the_replaced_layer(
    case: Case, other: Case, writer: str, reader: str, verl_value_layer: str, tmp_path: Path
) -> None:
    run_on_ranks(INSTALLED, case.ranks, _save_and_load, case, other, verl_value_layer, str(tmp_path), writer, reader)


@on_ranks
def test_the_page(case: Case, verl_value_layer: str) -> None:
    critic_of, config = from_page("compat-value-head.md", "critic_of"), build_config(case)
    layer = _layer_of(verl_value_layer, config)
    model = critic_of(build_model(case), layer)
    assert torch.equal(model(**_call(case)), _critic(case, verl_value_layer, "legacy")(**_call(case)))


@on_ranks(Case(dtype=torch.bfloat16))
def test_a_plain_state_dict_of_the_replaced_layer_loads(case: Case, verl_value_layer: str) -> None:
    old, new = _critic(case, verl_value_layer, "legacy"), _critic(case, verl_value_layer, "own")
    with torch.no_grad():
        new.output_layer.weight.zero_()
    Float16Module(new.config, new).load_state_dict(Float16Module(old.config, old).state_dict())
    assert torch.equal(new.output_layer.weight, old.output_layer.weight)
    new.load_state_dict(new.state_dict())
    with pytest.raises(RuntimeError, match=r"size mismatch for output_layer\.weight"):
        new.load_state_dict(build_model(case).state_dict())  # a language model's


@on_ranks
def test_a_language_model_inside_another_model(case: Case, verl_value_layer: str) -> None:
    expected = _critic(case, verl_value_layer, "legacy")(**_call(case))
    outer = OpenVision(build_model(case))
    add_value_head([outer], _layer_of(verl_value_layer, build_config(case)))
    assert torch.equal(outer(**_call(case)), expected)
    heads = [name for name, _ in outer.named_parameters() if "output_layer" in name]
    assert heads == ["language_model.output_layer.weight"]
    with pytest.raises(HookBypassedError, match="was called as a plain method"):
        outer(**_call(case), labels=batch_of(case)["labels"])


@pytest.mark.parametrize("case", [Case(), Case(tp=2, sequence_parallel=True)], ids=str)
@on_ranks
def test_a_head_may_have_several_outputs(case: Case) -> None:
    sides = []
    for new in (False, True):
        model = build_model(case)
        if new:
            add_value_head(model, outputs=3)
        else:
            group = parallel_state.get_tensor_model_parallel_group()
            model.output_layer = ValueLayer(model.config, group, like=model.output_layer.weight, outputs=3)
        torch.nn.init.normal_(model.output_layer.weight, generator=torch.Generator().manual_seed(7))
        values = model(**_call(case))
        assert values.shape == (*batch_of(case)["input_ids"].shape, 3)
        torch.autograd.backward(_loss(values))
        sides.append((values.detach(), gradients_of(model)))
    with pytest.raises(UnsupportedHeadError, match="this model is a critic"):  # known by its layer, not by one output
        call_with_processor(model, LogProbs(), **_call(case))
    (values, gradients), (new_values, new_gradients) = sides
    assert torch.equal(values, new_values)
    assert gradients.keys() == new_gradients.keys()
    assert all(torch.equal(value, new_gradients[name]) for name, value in gradients.items())


@on_ranks
def test_what_a_critic_cannot_be_is_refused_before_anything_changes() -> None:
    with pytest.raises(HookError, match="mtp_num_layers=None"):
        add_value_head(build_model(Case(mtp=1)))
    model = build_model(Case())
    DistributedDataParallel(build_config(Case()), DistributedDataParallelConfig(), model)
    with pytest.raises(HookError, match="already wrapped"):
        add_value_head(model)
    model = build_model(Case())
    model.config.defer_embedding_wgrad_compute = True
    with pytest.raises(HookError, match="defer_embedding_wgrad_compute"):
        add_value_head(model)
    model = build_model(Case())
    with pytest.raises(HookError, match="already wrapped"):
        add_value_head(torch.nn.parallel.DistributedDataParallel(model))
    assert model.output_layer.weight is not None
    assert not model._forward_pre_hooks
    add_value_head(model)
    with pytest.raises(HookError, match="add it once"):
        add_value_head(model)
    with pytest.raises(ValueError, match="the layer that is given decides"):
        add_value_head(build_model(Case()), torch.nn.Linear(16, 2), outputs=2)
    untouched = build_model(Case())
    assert untouched.output_layer.weight is not None
    for processor in (LogProbs(), HeadInputs()):
        with pytest.raises(UnsupportedHeadError, match="this model is a critic: its output_layer"):
            call_with_processor(model, processor, **_call(Case()))
    with pytest.raises(ValueError, match="values and no loss"):
        model(**_call(Case()), labels=batch_of(Case())["labels"])
    with pytest.raises(ValueError, match="values and no loss"):
        model(*_call(Case()).values(), None, batch_of(Case())["labels"])


@on_ranks(Case(pp=2, tied=True))
def test_tied_embeddings_over_pipeline_stages_are_refused(model: Any) -> None:
    if model.post_process:
        with pytest.raises(HookError, match="share_embeddings_and_output_weights=False"):
            add_value_head(model)
