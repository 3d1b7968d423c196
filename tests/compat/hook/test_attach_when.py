"""`attach(..., when=...)` and inference: asked at every forward, and Megatron's own path where it is no."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case, batch_of, build_model, start_world
from harness.oracle import gradients_of
from harness.rounding import assert_close
from hook.test_head_inputs import patched
from megatron.core.inference.contexts import StaticInferenceContext
from megatron.core.inference.utils import InferenceMode
from torch.utils.checkpoint import checkpoint

from mcore_unpatch.compat import AttachmentError, Entropy, HeadInputs, LogProbs, Processor, attach


class Switch:
    """The flag of a project, asked by a function, which counts."""

    def __init__(self, *, on: bool) -> None:
        self.on, self.asked = on, 0

    def ask(self) -> bool:
        self.asked += 1
        return self.on


def _step(model: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
    model.zero_grad()
    output = model(**inputs)
    torch.autograd.backward(output.square().sum())
    return output, gradients_of(model)


@pytest.mark.parametrize("case", [Case(), Case(tp=2, tied=True), Case(hybrid=True)], ids=str)
@on_ranks
def test_switched_between_calls_it_gives_what_a_patch_with_a_switch_gave(case: Case, model: Any, inputs: Any) -> None:
    switch = Switch(on=False)
    other = patched(build_model(case), [], switch)
    unlabelled = {**inputs, "labels": None}
    attach(model, HeadInputs(), when=switch.ask)
    shapes = []
    for on, call in ((False, inputs), (True, unlabelled), (False, unlabelled), (True, unlabelled), (False, inputs)):
        switch.on = on
        (ours, gradients), (theirs, expected) = _step(model, call), _step(other, call)
        assert torch.equal(ours, theirs)
        assert all(torch.equal(gradients[name], gradient) for name, gradient in expected.items())
        shapes.append(tuple(ours.shape[2:]))
    hidden, vocabulary = (case.hidden,), (case.vocab // case.tp,)
    assert shapes == [(), hidden, vocabulary, hidden, ()]
    assert switch.asked == 5


@on_ranks
def test_what_else_a_call_may_bring(model: Any, inputs: Any) -> None:
    expected = model(**inputs)
    switch = Switch(on=False)
    with attach(model, LogProbs(), legacy={"temperature": "temperature"}, when=switch.ask):
        assert torch.equal(model(**inputs, temperature=0.5), expected)  # a legacy keyword never reaches Megatron
        assert model(**inputs, output_processor=lambda **_: "the caller's own") == "the caller's own"
        switch.on = True
        with pytest.raises(AttachmentError, match="passes its own output_processor"):
            model(**inputs, output_processor=lambda **_: "the caller's own")
        inference = {**inputs, "labels": None, "runtime_gather_output": True}
        asked = switch.asked
        with InferenceMode.active():
            assert model(**inference).shape[-1] == Case().vocab
        assert switch.asked == asked


@on_ranks
def test_when_is_part_of_what_is_attached(model: Any) -> None:
    switch = Switch(on=True)
    handle = attach(model, Entropy(), when=switch.ask)
    assert attach(model, Entropy(), when=switch.ask) is handle
    for when in (None, Switch(on=True).ask, lambda: True):
        with pytest.raises(AttachmentError, match="differs from this one in the processor, context, legacy or when"):
            attach(model, Entropy(), when=when)
    handle.remove()
    with pytest.raises(TypeError, match="when: expected a function to call at every forward, got True"):
        attach(model, Entropy(), when=switch.on)  # type: ignore[arg-type]
    assert not model._forward_pre_hooks


@pytest.mark.parametrize("case", [Case(), Case(recompute=True)], ids=str)
@on_ranks
def test_another_answer_while_a_whole_model_is_recomputed_is_no_secret(case: Case, model: Any, inputs: Any) -> None:
    """A whole model that runs again in the backward asks again there; recomputed layers of Megatron's do not ask."""
    unlabelled = {**inputs, "labels": None}
    switch = Switch(on=True)

    def recomputed(processor: Processor, call: dict[str, Any], *, first: bool, then: bool) -> Any:
        model.zero_grad()
        switch.on = first
        with attach(model, processor, when=switch.ask):
            output = checkpoint(model, **call, use_reentrant=False)
            switch.on = then
            torch.autograd.backward(output.square().sum())
        return gradients_of(model)

    with attach(model, HeadInputs(), when=switch.ask):
        _, expected = _step(model, unlabelled)
    assert switch.asked == 1
    gradients = recomputed(HeadInputs(), unlabelled, first=True, then=True)
    assert switch.asked == 3
    assert all(torch.equal(gradients[name], gradient) for name, gradient in expected.items())
    with pytest.raises(RuntimeError, match="ecomput"):
        recomputed(LogProbs(), inputs, first=True, then=False)
    with pytest.raises(RuntimeError, match="recomput"):
        recomputed(HeadInputs(), unlabelled, first=False, then=True)


def _model_and_logits(case: Case) -> tuple[Any, dict[str, Any], torch.Tensor]:
    start_world(case)
    model = build_model(case).eval()
    inputs = {**batch_of(case), "attention_mask": None, "labels": None, "runtime_gather_output": True}
    return model, inputs, model(**inputs)


@on_ranks
def test_a_call_that_failed_before_its_processor_ran_is_not_held_against_the_next(case: Case) -> None:
    model, inputs, logits = _model_and_logits(case)
    outside = torch.full_like(inputs["input_ids"], case.vocab + 1000)
    with attach(model, Entropy()):
        with pytest.raises(IndexError):  # in the embedding: the processor was chosen for this call and never ran
            model(**inputs | {"input_ids": outside})
        with InferenceMode.active():
            assert torch.equal(model(**inputs), logits)


@on_ranks
def test_every_way_to_name_the_inference_context_is_known(case: Case) -> None:
    model, inputs, logits = _model_and_logits(case)
    first = [inputs[name] for name in ("input_ids", "position_ids", "attention_mask")]
    for given in ("inference_context", "inference_params", "by position"):
        context = StaticInferenceContext(max_batch_size=case.batch, max_sequence_length=case.sequence)
        context.config = model.config
        with attach(model, Entropy()), torch.no_grad():
            if given == "by position":  # the sixth
                result = model(*first, None, None, context, runtime_gather_output=True)
            else:
                result = model(**inputs, **{given: context})
        assert result.shape[-1] == case.vocab  # logits, where the processor would give one entropy per token
        assert_close(result, logits)
