"""HeadInputs beside the patch it replaces: on a second model, an `output_layer.forward` that hands its input on."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.faithful import inputs_for
from harness.models import Case, build_model, start_world
from harness.oracle import gradients_of, main_logits
from harness.rounding import assert_agree, assert_close
from megatron.core import parallel_state
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
from torch import Tensor

from mcore_unpatch.compat import (
    AttachmentError,
    Compose,
    Entropy,
    HeadInputs,
    HookContext,
    LogProbs,
    UnsupportedHeadError,
    attach,
    call_with_processor,
)


def patched(model: Any, kept: list[Tensor], switch: Any = None) -> Any:
    """The patch, in the way that projects write it, with or without a switch."""
    layer = model.output_layer
    original = layer.forward

    def forward(input_: Tensor, weight: Tensor | None = None, runtime_gather_output: bool | None = None) -> Any:
        if switch is not None and not switch.on:
            return original(input_, weight=weight, runtime_gather_output=runtime_gather_output)
        kept.append(layer.weight if weight is None else weight)
        return input_, None

    layer.forward = forward
    return model


def backward(hidden: Tensor, weight: Tensor) -> None:
    """A loss of every logit, made from the hidden states and the weight, and its gradients."""
    noise = torch.randn(*hidden.shape[:2], len(weight), generator=torch.Generator().manual_seed(3))
    torch.autograd.backward(((hidden.float() @ weight.float().T) * noise).sum())


def assert_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        assert torch.equal(ours[name], gradient), f"{name}: {(ours[name] - gradient).abs().max()}"
    assert any(gradient.abs().max() > 1e-6 for gradient in theirs.values())


def _start(case: Case) -> tuple[Any, Any, dict[str, Any]]:
    """Two models with the same weights, and arguments without labels."""
    start_world(case)
    return build_model(case), build_model(case), {**inputs_for(case), "labels": None}


CASES = [
    Case(),
    Case(tied=True, mup=True, hybrid=True),
    Case(dtype=torch.bfloat16, mup=True),
    Case(tp=2),
    Case(tp=2, sequence_parallel=True),
    Case(tp=2, sequence_parallel=True, tied=True, mup=True, packed=True, batch=3),
    Case(tp=2, sequence_parallel=True, hybrid=True),
    Case(packed=True, batch=3, cp=2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@on_ranks
def test_hidden_states_and_all_gradients_are_those_of_the_patch(case: Case) -> None:
    model, other, inputs = _start(case)
    logits = model(**inputs)
    if case.sequence_parallel:
        logits = logits.chunk(case.tp, 1)[parallel_state.get_tensor_model_parallel_rank()]
    kept: list[Tensor] = []
    expected = patched(other, kept)(**inputs)
    backward(expected, kept[-1])
    seen: list[Tensor] = []
    processor = HeadInputs(keep=seen.append)
    assert processor.weight is None
    with attach(model, processor):
        hidden = model(**inputs)
    weight = model.shared_embedding_or_output_weight() if case.tied else model.output_layer.weight
    assert processor.weight is weight
    assert [one is weight for one in seen] == [True]
    backward(hidden, weight)
    assert hidden.is_contiguous()
    assert hidden.dtype == expected.dtype
    assert torch.equal(hidden, expected)
    assert_equal(gradients_of(model), gradients_of(other))
    assert_close(hidden @ weight.T, logits, case.dtype)


def _mtp_losses() -> dict[str, Tensor]:
    logged = {name: value.clone() for name, value in MTPLossLoggingHelper.tracker.items() if torch.is_tensor(value)}
    MTPLossLoggingHelper.tracker.clear()
    return logged


MTP = [Case(mtp=1), Case(mtp=2, tied=True, mup=True), Case(mtp=1, hybrid=True)]


@pytest.mark.parametrize("labelled", [True, False], ids=["labels", "no labels"])
@pytest.mark.parametrize("case", MTP, ids=str)
@on_ranks
def test_the_mtp_loss_is_megatrons_own(case: Case, release: str, labelled: bool) -> None:
    model, _, inputs = _start(case)
    if labelled:
        inputs["labels"] = inputs_for(case)["labels"]
    logits = main_logits(model, inputs).transpose(0, 1)
    noise = torch.randn(logits.shape, generator=torch.Generator().manual_seed(3))
    torch.autograd.backward((logits * noise).sum())
    gradients, losses = gradients_of(model), _mtp_losses()
    assert bool(losses) == (labelled or release != "0.18.2")  # 0.18 needs labels for it
    model.zero_grad()

    processor = HeadInputs()
    hidden = call_with_processor(model, processor, **inputs)
    assert processor.weight is not None
    backward(hidden, processor.weight)
    ours = _mtp_losses()
    assert ours.keys() == losses.keys()
    assert all(torch.equal(ours[name], value) for name, value in losses.items())
    assert_agree(gradients_of(model), gradients)


@on_ranks
def test_labels_without_a_use_and_a_patch_still_in_place_are_refused() -> None:
    model, other, inputs = _start(Case())
    labels = inputs_for(Case())["labels"]
    processor = HeadInputs()
    with pytest.raises(ValueError, match=r"labels: HeadInputs returns hidden states and no loss.*leave them out"):
        call_with_processor(model, processor, **{**inputs, "labels": labels})
    assert processor.weight is None
    context = HookContext(labels=labels)
    both = call_with_processor(model, Compose(processor, LogProbs()), context=context, **inputs)
    picked = (both.headinputs @ processor.weight.T).log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    assert_close(both.log_probs, picked)
    with pytest.raises(UnsupportedHeadError, match="its forward was replaced on the instance"):
        call_with_processor(patched(other, []), HeadInputs(), **inputs)


@on_ranks
def test_two_that_keep_the_weight_in_one_place_are_the_same(model: Any, inputs: Any) -> None:
    kept: list[Tensor] = []
    handle = attach(model, HeadInputs(keep=kept.append))
    model(**inputs | {"labels": None})  # what one of them has seen makes no difference
    assert attach(model, HeadInputs(keep=kept.append)) is handle
    for another in (HeadInputs(), HeadInputs(keep=[].append), Entropy()):
        with pytest.raises(AttachmentError, match="Compose"):
            attach(model, another)
    assert HeadInputs() == HeadInputs()
    assert hash(HeadInputs(print)) == hash(HeadInputs(print)) != hash(HeadInputs())
