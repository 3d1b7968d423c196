"""Models of somebody's own: what a subclass makes of its logits or of its loss is kept, or refused in words."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case, build_model
from harness.oracle import gradients_of
from harness.rounding import assert_agree

from mcore_unpatch.compat import (
    HookError,
    Logits,
    LogProbs,
    TokenLoss,
    attach,
    call_with_processor,
    schedule_plan_with_processor,
)


def _with(model: Any, **methods: Any) -> Any:
    """The model as one of a subclass with these methods; each is given the method it overrides."""
    kind = type(model)

    def overriding(name: str, change: Any) -> Any:
        return lambda self, *args, **kwargs: change(getattr(kind, name)(self, *args, **kwargs))

    model.__class__ = type("Own", (kind,), {name: overriding(name, change) for name, change in methods.items()})
    return model


def _capped(logits: Any) -> Any:
    return 2 * torch.tanh(logits / 2)


def _capped_in_place(logits: Any) -> Any:
    return logits.div_(2).tanh_().mul_(2)


def _without_labels(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if name not in ("labels", "loss_mask")}


@on_ranks
def test_an_output_that_a_subclass_changes(case: Case, inputs: Any) -> None:
    """The processor runs before it, so that log-probs would be capped like logits."""
    for method, change in (("forward", _capped), ("_postprocess", _capped), ("forward", _capped_in_place)):
        model = build_model(case)
        with torch.no_grad():
            logits = change(model(**_without_labels(inputs)))
            _with(model, **{method: change})
            with pytest.raises(HookError, match=r"changes what the processor returned.*soft-capped"):
                call_with_processor(model, LogProbs(), **inputs)
            with attach(model, LogProbs()), pytest.raises(HookError, match="changes what the processor returned"):
                model(**inputs)
            assert not model._forward_hooks
            assert torch.equal(call_with_processor(model, Logits(), **inputs), logits)


@on_ranks(Case(hybrid=True))
def test_logits_that_a_subclass_of_a_hybrid_model_changes(model: Any, inputs: Any) -> None:
    expected = call_with_processor(model, LogProbs(), **inputs)
    assert torch.equal(call_with_processor(_with(model, forward=lambda out: (out, 1)), LogProbs(), **inputs), expected)
    _with(model, forward=lambda out: _capped(out[0]))
    with pytest.raises(HookError, match=r"changes the logits.*runs after it"):
        call_with_processor(model, LogProbs(), **inputs)


@on_ranks
def test_a_subclass_that_hands_its_output_on(model: Any, inputs: Any) -> None:
    expected = call_with_processor(model, LogProbs(), **inputs)
    _with(model, forward=lambda output: {"output": output, "more": 1})
    assert torch.equal(call_with_processor(model, LogProbs(), **inputs)["output"], expected)
    with attach(model, LogProbs()):
        assert torch.equal(model(**inputs)["output"], expected)


@on_ranks
def test_a_plan_of_a_subclass_with_an_output_of_its_own(model: Any, inputs: Any) -> None:
    _with(model, _postprocess=_capped)
    with pytest.raises(HookError, match="is not Megatron's own, and a plan cannot tell"):
        schedule_plan_with_processor(model, LogProbs(), **inputs)


@on_ranks
def test_a_loss_of_the_models_own(model: Any, inputs: Any) -> None:
    """Smoothed labels, a z-loss, distillation: the processor's cross-entropy is none of them."""
    _with(model, compute_language_model_loss=lambda loss: loss.square())
    expected = model(**inputs)
    assert expected.isfinite().all()
    with pytest.raises(HookError, match=r"the loss of this model is its own \(.*test_own_models.py"):
        call_with_processor(model, TokenLoss(), **inputs)


@on_ranks
def test_a_weight_that_a_hook_makes_in_every_call(model: Any, inputs: Any) -> None:
    """Its parameters get their gradients: the hook runs where gradients are on."""
    layer = torch.nn.utils.weight_norm(model.output_layer)
    torch.autograd.backward(model(**inputs).sum())
    truth = gradients_of(model)
    for _ in range(2):
        model.zero_grad()
        torch.autograd.backward(call_with_processor(model, TokenLoss(), **inputs).sum())
        assert layer.weight_g.grad.abs().max() > 0
        assert_agree(gradients_of(model), truth)
