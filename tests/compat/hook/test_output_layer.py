"""Heads that do more than multiply: their weight alone would give wrong log-probs, and so they are refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import run_on_ranks
from harness.models import Case, batch_of, build_model, start_world

from mcore_unpatch.compat import Logits, LogProbs, UnsupportedHeadError, call_with_processor


class SoftCapped(torch.nn.Module):
    """A mix-in for the output layer, in the way model bridges cap logits: the instance changes its class."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        logits, bias = super().forward(*args, **kwargs)
        return 0.1 * torch.tanh(logits / 0.1), bias


class Adapter(torch.nn.Module):
    """Low-rank adapters wrap the layer and have no weight of their own."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.to_wrap = layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.to_wrap(*args, **kwargs)


def _soft_cap(model: Any) -> None:
    layer = model.output_layer
    layer.__class__ = type("Capped", (SoftCapped, type(layer)), {})


def _adapt(model: Any) -> None:
    model.output_layer = Adapter(model.output_layer)


def _add_bias(model: Any) -> None:
    model.output_layer.bias = torch.nn.Parameter(torch.ones(model.vocab_size))


def _divide_in_place(layer: Any, args: Any, output: Any) -> None:
    output[0].div_(2)


def _replace(layer: Any, args: Any, output: Any) -> Any:
    return output[0] / 2, output[1]


def _double_the_input(layer: Any, args: Any) -> Any:
    return args[0] * 2, *args[1:]


WAYS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a class with a forward of its own": (_soft_cap, "its forward comes from"),
    "an adapter": (_adapt, "it has no 2-D weight"),
    "a bias": (_add_bias, "it has a bias"),
    "a hook that replaces the output": (lambda m: m.output_layer.register_forward_hook(_replace), "changes its output"),
    "a hook that writes to the output": (
        lambda m: m.output_layer.register_forward_hook(_divide_in_place),
        "changes its output",
    ),
    "a hook that replaces the input": (
        lambda m: m.output_layer.register_forward_pre_hook(_double_the_input),
        "changes its input",
    ),
}


def _refused(way: str) -> None:
    case = Case()
    start_world(case)
    model, inputs = build_model(case), {**batch_of(case), "attention_mask": None}
    change, reason = WAYS[way]
    before = call_with_processor(model, LogProbs(), **inputs)
    change(model)
    with pytest.raises(UnsupportedHeadError, match=f"{reason}.*Use the Logits processor, which calls the layer"):
        call_with_processor(model, LogProbs(), **inputs)
    logits = call_with_processor(model, Logits(), **inputs)
    assert torch.equal(logits, model(**{**inputs, "labels": None}))
    assert before.shape == logits.shape[:2]


@pytest.mark.parametrize("way", WAYS)
def test_a_head_that_does_more_than_the_product_is_refused(release: str, way: str) -> None:
    run_on_ranks(release, 1, _refused, way)


def _harmless() -> None:
    case = Case()
    start_world(case)
    model, inputs = build_model(case), {**batch_of(case), "attention_mask": None}
    expected = call_with_processor(model, LogProbs(), **inputs)
    seen: list[int] = []
    model.output_layer.register_forward_pre_hook(lambda layer, args: seen.append(1))
    model.output_layer.register_forward_hook(lambda layer, args, output: seen.append(2))
    for guard in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        seen.clear()
        with guard():
            assert torch.equal(call_with_processor(model, LogProbs(), **inputs), expected)
        assert seen == [1, 2]
    assert len(model.output_layer._forward_hooks) == len(model.output_layer._forward_pre_hooks) == 1


def test_hooks_that_only_look_are_let_be(release: str) -> None:
    run_on_ranks(release, 1, _harmless)
