"""The fused shim where veRL's original could not go: MTP, value heads, no labels, wrappers, MuP, tensor parallelism."""

import sys
from typing import Any

import pytest
import torch
from downstream.comparing import Run, assert_same, run
from downstream.verl import CausalLMOutputForPPO, stand_in
from harness import on_ranks, run_on_ranks
from harness.models import Case, build_model, start_world
from harness.pool import forget_ranks
from harness.rounding import assert_agree, assert_close
from torch import Tensor

from mcore_unpatch.compat import HookBypassedError, HookSwallowedError, Outputs, UnsupportedHeadError
from mcore_unpatch.compat.verl import installed
from mcore_unpatch.compat.verl.model_forward_fused import (
    fused_forward_model_engine,
    fused_forward_model_gen,
    fused_forward_no_padding_gen,
    patch_fused_forward,
    unpatch_fused_forward,
)
from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess, unpatch_postprocess

LENGTHS = [11, 4, 16]


def _batch(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens padded on the left, where they are real, and labels."""
    generator = torch.Generator().manual_seed(11)
    ids = torch.randint(1, case.vocab, (len(LENGTHS), case.sequence), generator=generator)
    real = torch.arange(case.sequence) >= case.sequence - torch.tensor(LENGTHS)[:, None]
    return ids * real, real, (ids * real).roll(-1, -1)


def _from_logits(logits: Tensor, labels: Tensor, temperature: float) -> dict[str, Tensor]:
    log_softmax = (logits / temperature).log_softmax(-1)
    return {
        "entropy": -(log_softmax.exp() * log_softmax).sum(-1),
        "log_probs": log_softmax.gather(-1, labels[..., None]).squeeze(-1),
    }


@pytest.mark.parametrize("case", [Case(batch=3), Case(tied=True), Case(mup=True), Case(packed=True)], ids=str)
@on_ranks
def test_a_patched_model_called_directly(case: Case, model: Any, inputs: Any) -> None:
    expected = run(model, lambda: _from_logits(model(**inputs | {"labels": None}), inputs["labels"], 0.7))
    for _ in range(2):
        assert patch_fused_forward(model, numbers="megatron") is None

    def fused() -> dict[str, Tensor]:
        out = model(**inputs, temperature=0.7)
        assert out["log_probs"] is out.log_probs
        assert out.hidden_states.shape[-1] == case.hidden
        return {"entropy": out.entropy, "log_probs": out.log_probs}

    assert_same(run(model, fused), expected)
    assert_close(model(**inputs).log_probs, model(**inputs, temperature=1.0).log_probs)
    logits = model(**inputs | {"labels": None})
    assert logits.shape == (*inputs["labels"].shape, case.vocab)
    assert model(**inputs, output_processor=lambda **_: "another") == "another"
    for _ in range(2):
        assert unpatch_fused_forward(model) is None
    assert torch.is_tensor(model(**inputs))


def _hooks_left(case: Case) -> list[str]:
    start_world(case)
    model = build_model(case)
    patch_fused_forward(model, numbers="megatron")
    held = len(model._forward_pre_hooks)
    unpatch_fused_forward(model)
    return [f"{held > 0}", *map(repr, model._forward_pre_hooks.values())]


def test_no_hook_stays_on_an_unpatched_model(release: str) -> None:
    """In ranks of its own: what other tests have imported twice there would be another shim."""
    forget_ranks(release, 1)
    assert run_on_ranks(release, 1, _hooks_left, Case()) == [["True"]]


def _sum(one: Run, other: Run) -> dict[str, Tensor]:
    return {name: gradient + other.gradients[name] for name, gradient in one.gradients.items()}


@pytest.mark.parametrize("data_format", ["thd", "bshd"])
@on_ranks(Case(mtp=2))
def test_fused_together_with_mtp(case: Case, model: Any, data_format: str) -> None:
    ids, real, labels = _batch(case)
    mask = real.clone()
    mask[:, -1] = False
    forward = fused_forward_model_gen()

    def fused(**options: Any) -> Run:
        return run(model, lambda: forward(model, ids, None, real, labels, mask, 0.7, {}, **options))

    alone = fused(data_format=data_format)
    assert not alone.logged
    patch_postprocess(model)
    with pytest.warns(UserWarning, match="MTP is not trained, because veRL's fused forward leaves it out"):
        assert_same(fused(data_format=data_format), alone)
    asked = fused(data_format=data_format, mtp_enable_train=True)
    patch_fused_forward(model, numbers="megatron")
    both = fused(data_format=data_format)
    assert both.logged
    assert_same(asked, both)
    assert torch.equal(both.results["log_probs"], alone.results["log_probs"])
    off = fused(data_format=data_format, mtp_enable_train=False)
    assert not off.logged
    assert_same(off, alone)
    # The MTP loss adds its own gradient, whatever the main loss is: the same as with logits.
    packed: dict[str, Any] = {}
    model.register_forward_pre_hook(lambda model, args, kwargs: packed.update(kwargs), with_kwargs=True)
    fused(data_format=data_format)
    unpatch_fused_forward(model)
    packed = {k: v for k, v in packed.items() if not k.startswith("output_processor")}
    with_logits = run(model, lambda: {"logits": model(**packed)})
    without = run(model, lambda: {"logits": model(**packed | {"labels": None})})
    assert_agree(both.logged, with_logits.logged)
    # What MTP adds to one is what it adds to the other; said without a difference, in which roundings would stand out.
    assert_agree(_sum(both, without), _sum(with_logits, alone))


@on_ranks(Case(mtp=1))
def test_nested_batches_with_mtp_a_temperature_for_each_sequence_and_without_labels(case: Case, model: Any) -> None:
    patch_postprocess(model)
    patch_fused_forward(model, numbers="megatron")
    ids, real, _ = _batch(case)
    nested = torch.nested.nested_tensor([row[keep] for row, keep in zip(ids, real, strict=True)], layout=torch.jagged)
    seen: list[Any] = []
    model.register_forward_pre_hook(lambda m, args, kwargs: seen.append(kwargs), with_kwargs=True)
    forward = fused_forward_no_padding_gen()
    out = forward(
        model, nested, nested, None, torch.tensor([0.5, 1.0, 2.0]), False, 0, mtp_loss_normalization_factor=2.0
    )
    assert list(out) == ["log_probs"]
    assert seen[0]["loss_mask"].sum() == sum(LENGTHS) - len(LENGTHS)
    assert seen[0]["labels"].min() >= 0
    assert seen[0]["packed_seq_params"]._verl_mtp_loss_normalization_factor == 2.0
    for row, temperature in enumerate([0.5, 1.0, 2.0]):
        single = forward(model, nested, nested, {}, temperature, False, 0)["log_probs"].unbind()[row]
        assert_close(out["log_probs"].unbind()[row], single)
    logits = forward(model, nested, None, {}, 1.0, False, 0)
    assert [part.shape for part in logits.unbind()] == [(n, case.vocab) for n in LENGTHS]


@pytest.mark.parametrize("data_format", ["thd", "bshd"])
@on_ranks(Case(batch=3))
def test_a_temperature_for_each_sequence_of_a_padded_batch(case: Case, model: Any, data_format: str) -> None:
    """One per sequence, `[b]` or `[b, 1]`, or one per token."""
    ids, real, labels = _batch(case)
    real[1, :4] = False
    each = torch.tensor([0.5, 1.0, 2.0])

    def forward(temperature: Any) -> Tensor:
        out = fused_forward_model_gen()(model, ids, None, real, labels, real, temperature, data_format=data_format)
        return torch.stack([out["log_probs"], out["entropy"]])

    expected = torch.stack([forward(float(each[row]))[:, row] for row in range(3)], 1)
    for given in (each, each[:, None], each[:, None].expand(3, ids.shape[1])):
        assert_close(forward(given), expected)
    assert torch.equal(forward(torch.tensor([0.5])), forward(0.5))
    with pytest.raises(ValueError, match="temperature: expected a number, one per sequence or one per token"):
        forward(torch.ones(2))


class Wrapper(torch.nn.Module):
    """Stands for a vision-language model that knows nothing of the hook: packs by itself, calls the inner model."""

    def __init__(self, language_model: Any, by_forward: bool = False) -> None:
        super().__init__()
        self.language_model, self.by_forward = language_model, by_forward
        self.seen: dict[str, Any] = {}

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **kwargs: Any) -> Any:
        self.seen = kwargs
        inner = self.language_model.forward if self.by_forward else self.language_model
        rows = [row[keep] for row, keep in zip(input_ids, attention_mask, strict=True)]
        return inner(torch.cat(rows)[None], None, None, packed_seq_params=kwargs["packed_seq_params"])


class Idle(Wrapper):
    """A wrapper that has its output from somewhere else."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **kwargs: Any) -> Any:
        return input_ids


@on_ranks
def test_a_vision_wrapper_is_served_from_inside_and_one_that_passes_by_is_found(case: Case, model: Any) -> None:
    ids, real, labels = _batch(case)
    images = {"pixel_values": torch.ones(2), "image_grid_thw": torch.ones(1, 3), "other": torch.ones(1)}
    plain = fused_forward_model_gen()(model, ids, None, real, labels, real, 0.7, {})
    wrapper = Wrapper(model)
    out = fused_forward_model_gen(vision_model=True)(wrapper, ids, None, real, labels, real, 0.7, images)
    assert_close(out["log_probs"], plain["log_probs"])
    assert {"pixel_values", "image_grid_thw"} <= wrapper.seen.keys()
    assert wrapper.seen["position_ids"] is None
    assert "other" not in wrapper.seen
    nested = torch.nested.nested_tensor([row[keep] for row, keep in zip(ids, real, strict=True)], layout=torch.jagged)
    engine = fused_forward_model_engine(vision_model=True)
    text = fused_forward_model_engine()(model, nested, nested, {}, 0.7, True, 0)
    seen = engine(wrapper, nested, nested, images, 0.7, True, 0)
    assert_close(seen["entropy"].values(), text["entropy"].values())
    padding, given = torch.zeros(1, sum(LENGTHS), dtype=torch.bool), []
    look = model.register_forward_pre_hook(lambda _, args, kwargs: given.append(kwargs), with_kwargs=True)
    for more in ({}, {"router_padding_mask": padding}):
        fused_forward_model_engine()(model, nested, nested, {}, 0.7, False, 0, **more)
    look.remove()
    assert [one.get("padding_mask") for one in given] == [None, padding]
    with pytest.raises(HookBypassedError, match=r"was called as a plain method by Wrapper\.forward"):
        engine(Wrapper(model, by_forward=True), nested, nested, images, 0.7, True, 0)
    with pytest.raises(HookSwallowedError, match=r"Idle returned without calling GPTModel"):
        engine(Idle(model), nested, nested, images, 0.7, True, 0)
    assert not model._forward_pre_hooks


@on_ranks(Case(pp=2))
def test_pipeline_stages_without_output_pass_on_what_they_have(case: Case, model: Any) -> None:
    ids, real, labels = _batch(case)
    forward = fused_forward_model_gen()
    hidden = torch.empty(sum(LENGTHS), 1, case.hidden)
    if model.pre_process:
        out = forward(model, ids, None, real, labels, real, 0.7, {})
        assert out.shape == hidden.shape
        torch.distributed.send(out.detach(), 1)
        return
    torch.distributed.recv(hidden, 0)
    model.set_input_tensor(hidden)
    out = forward(model, ids, None, real, labels, None, 0.7, {})
    model.set_input_tensor(hidden)
    expected = _from_logits(forward(model, ids, None, real), labels, 0.7)
    for name, value in expected.items():
        assert_close(out[name], value * real)


@on_ranks
def test_value_models_get_a_clear_error(model: Any) -> None:
    model.output_layer = torch.nn.Linear(16, 1, bias=False)
    ids, real, labels = _batch(Case())
    for call in (lambda: patch_fused_forward(model), lambda: fused_forward_model_gen()(model, ids, None, real, labels)):
        with pytest.raises(UnsupportedHeadError, match="this model is a critic"):
            call()
    assert not model._forward_pre_hooks


@on_ranks(Case(packed=True))
def test_the_result_is_verls_own_class_where_verl_can_be_imported(model: Any, inputs: Any) -> None:
    patch_fused_forward(model)
    assert type(model(**inputs)) is Outputs
    names = ["verl", "verl.utils", "verl.utils.model"]
    for name in names:  # veRL itself cannot be imported here: it needs ray, transformers and more
        stand_in(name, CausalLMOutputForPPO=CausalLMOutputForPPO)
    installed._output_class.cache_clear()
    try:
        assert type(model(**inputs)) is CausalLMOutputForPPO
    finally:
        for name in names:
            del sys.modules[name]
        installed._output_class.cache_clear()


@on_ranks(Case(mtp=1), release="0.19.2")
def test_one_shim_is_undone_while_the_other_stays(model: Any, inputs: Any) -> None:
    head = model.output_layer._forward_pre_hooks
    patch_fused_forward(model, numbers="megatron")
    patch_postprocess(model, mtp_updates_lm_head=False)
    assert head
    unpatch_postprocess(model)
    assert not head
    assert model(**inputs).log_probs is not None
    patch_postprocess(model, mtp_updates_lm_head=False)
    patch_postprocess(model)
    assert not head
    unpatch_fused_forward(model)
    assert torch.is_tensor(model(**inputs))
    unpatch_postprocess(model)
    assert not model._forward_pre_hooks


@on_ranks(Case(batch=3), release="0.19.2")
def test_positions_of_the_callers_own_and_one_row_for_verls_numbers(case: Case, model: Any, inputs: Any) -> None:
    """Of the batch's shape they are packed with it; others are those of the model's own making."""
    ids, real, _ = _batch(case)
    seen: list[Tensor] = []
    model.register_forward_pre_hook(lambda _, args, kwargs: seen.append(kwargs["position_ids"]), with_kwargs=True)
    own = torch.arange(case.sequence).expand(3, -1)
    for given in (None, own, own[None].expand(3, -1, -1)):
        fused_forward_model_gen()(model, ids, given, real, ids)
    counted = torch.cat([torch.arange(n) for n in LENGTHS])
    assert [one[0].tolist() for one in seen] == [counted.tolist(), own[real].tolist(), counted.tolist()]
    patch_fused_forward(model)
    with pytest.raises(ValueError, match=r'labels \[3, 16\].*or call patch_fused_forward\(model, numbers="megatron"\)'):
        model(**inputs)
