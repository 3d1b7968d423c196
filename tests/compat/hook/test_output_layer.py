"""Heads that do more than multiply: their weight alone would give wrong log-probs, and so they are refused."""

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from harness import on_ranks
from harness.models import Case, build_config
from harness.rounding import assert_close
from megatron.core.tensor_parallel import ColumnParallelLinear, layers
from torch import Tensor

from mcore_unpatch.compat import HeadInputs, Logits, LogProbs, UnsupportedHeadError, call_with_processor


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


def _swap_the_weight(layer: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return args, kwargs | {"weight": layer.weight * 2}


def _cap_below(model: Any) -> None:
    """Below `forward`, where the name of the layer's own method says nothing."""
    own = model.output_layer._forward_impl
    model.output_layer._forward_impl = lambda **keywords: 0.1 * torch.tanh(own(**keywords) / 0.1)


class _HalfTheGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        return logits

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] / 2


class _Contiguous(torch.autograd.Function):
    """The same value and the same gradient, in other memory: what ROLL's models hang on their output layer."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        return logits

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0].contiguous()


def _hand_through(layer: Any, args: Any, output: Any) -> Any:
    return _Contiguous.apply(output[0]), output[1]  # type: ignore[no-untyped-call]


def _scale_the_gradient(layer: Any, args: Any, output: Any) -> Any:
    return _HalfTheGradient.apply(output[0]), output[1]  # type: ignore[no-untyped-call]


WAYS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a class with a forward of its own": (_soft_cap, "its forward is defined in"),
    "an adapter": (_adapt, "it has no 2-D weight"),
    "a bias": (_add_bias, "it has a bias"),
    "a product of the instance's own": (_cap_below, "its _forward_impl is defined in .*test_output_layer.py"),
}
# How a hook is registered, the hook, and what is said of it.
HOOKS: dict[str, tuple[str, Any, str]] = {
    "replaces the output": ("register_forward_hook", _replace, "changes its output"),
    "writes to the output": ("register_forward_hook", _divide_in_place, "changes its output"),
    "scales the gradient": ("register_forward_hook", _scale_the_gradient, "changes the gradient"),
    "replaces the input": ("register_forward_pre_hook", _double_the_input, "changes its input"),
    "in the backward": ("register_full_backward_hook", lambda *_: None, "a backward hook on it would never run"),
    "before the backward": ("register_full_backward_pre_hook", lambda *_: None, "a backward hook on it would never"),
}


@pytest.mark.parametrize("way", [*WAYS, *HOOKS, "swaps the weight"])
@on_ranks
def test_a_head_that_does_more_than_the_product_is_refused(model: Any, inputs: Any, way: str) -> None:
    call_with_processor(model, LogProbs(), **inputs)
    if way in WAYS:
        change, reason = WAYS[way]
        change(model)
    elif way in HOOKS:
        register, hook, reason = HOOKS[way]
        getattr(model.output_layer, register)(hook)
    else:
        model.output_layer.register_forward_pre_hook(_swap_the_weight, with_kwargs=True)
        reason = "changes its weight"
    with pytest.raises(UnsupportedHeadError, match=f"{reason}.*use the Logits processor, which calls the layer"):
        call_with_processor(model, LogProbs(), **inputs)
    logits = call_with_processor(model, Logits(), **inputs)
    assert torch.equal(logits, model(**{**inputs, "labels": None}))


@pytest.mark.parametrize("name", ["forward", "_forward_impl", "linear_with_grad_accumulation_and_async_allreduce"])
@on_ranks
def test_a_patch_is_known_by_its_code_and_not_by_its_name(model: Any, inputs: Any, name: str) -> None:
    """A patch of the class or of the function below it, dressed as the original by functools.wraps."""
    owner: Any = layers if name.startswith("linear") else ColumnParallelLinear
    original = getattr(owner, name)

    @functools.wraps(original)
    def halved(*args: Any, **kwargs: Any) -> Any:
        out = original(*args, **kwargs)
        return (out[0] / 2, out[1]) if isinstance(out, tuple) else out / 2

    # The test stands in for such a project; nothing here is replaced outside of this block.
    with mock.patch.object(owner, name, halved):
        refused = pytest.raises(UnsupportedHeadError, match=r"is defined in .*test_output_layer.py:\d+ .*halved")
        with refused:
            call_with_processor(model, LogProbs(), **inputs)
        with pytest.raises(UnsupportedHeadError):
            call_with_processor(model, HeadInputs(), **{**inputs, "labels": None})
    call_with_processor(model, LogProbs(), **inputs)


@on_ranks
def test_one_column_is_no_vocabulary(case: Case, model: Any, inputs: Any) -> None:
    init = model.config.init_method
    model.output_layer = ColumnParallelLinear(16, 1, config=build_config(case), init_method=init, bias=False)
    with pytest.raises(UnsupportedHeadError, match="this model is a critic"):
        call_with_processor(model, LogProbs(), **inputs)


@pytest.mark.parametrize("rows", [24, 48])
@on_ranks
def test_a_weight_that_is_sharded_further_is_refused(model: Any, inputs: Any, rows: int) -> None:
    """Megatron's generalized tensor parallelism leaves a part of the shard on each rank, padded to a multiple."""
    whole = model.output_layer.weight.detach()
    try:
        from megatron.core.tensor_parallel.generalized_tensor_parallelism import GTPShardedParam
    except ImportError:  # megatron-core 0.18 has none
        GTPShardedParam = torch.nn.Parameter  # noqa: N806
    # Its constructor makes CUDA events, for gathers that a refused layer never begins.
    part = GTPShardedParam.__new__(GTPShardedParam, whole[:rows].clone())
    part.gtp_remat_size = 2
    model.output_layer.weight = part
    model.output_layer.gtp_remat_size = 2
    for processor in (LogProbs(), HeadInputs()):
        with pytest.raises(UnsupportedHeadError, match="its weight is sharded further"):
            call_with_processor(model, processor, **{**inputs, "labels": None})


@on_ranks
def test_hooks_that_hand_through_or_only_look_are_let_be(model: Any, inputs: Any) -> None:
    seen: list[int] = []
    results = []
    look_in, look_out = (lambda layer, args: seen.append(1)), (lambda layer, args, output: seen.append(2))
    for hook in (None, _hand_through, lambda layer, args, output: (output[0].view_as(output[0]), output[1])):
        if hook is not None:
            model.output_layer.register_forward_hook(hook)
        model.zero_grad()
        for _ in range(2):
            out = call_with_processor(model, LogProbs(), **inputs)
        torch.autograd.backward(out.sum())
        results.append((out.detach(), model.output_layer.weight.grad.clone()))
    assert all(torch.equal(one[0], results[0][0]) and torch.equal(one[1], results[0][1]) for one in results)
    model.output_layer.register_forward_pre_hook(look_in)
    model.output_layer.register_forward_hook(look_out)
    for guard in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        seen.clear()
        with guard():
            assert torch.equal(call_with_processor(model, LogProbs(), **inputs), results[0][0])
        assert seen == [1, 2]
    assert (len(model.output_layer._forward_pre_hooks), len(model.output_layer._forward_hooks)) == (1, 3)


_AS_ON_DEV = """
class Fused(ColumnParallelLinear):
    def forward(self, input_, weight=None, runtime_gather_output=None):
        return super().forward(input_, weight, runtime_gather_output)
"""


@on_ranks
def test_a_class_patch_below_a_layer_of_megatrons_is_seen(model: Any, inputs: Any) -> None:
    """The layer stands for the head of GPTModel on Megatron's dev branch, of which there is no release.

    It is made as if its code lay in Megatron's folder.
    """
    names: dict[str, Any] = {"ColumnParallelLinear": ColumnParallelLinear, "__name__": layers.__name__}
    exec(compile(_AS_ON_DEV, layers.__file__, "exec"), names)
    model.output_layer.__class__ = names["Fused"]
    expected = call_with_processor(model, LogProbs(), **inputs)
    assert_close(expected, -model(**inputs))
    own = ColumnParallelLinear.forward

    def capped(self: Any, *args: Any, **kwargs: Any) -> Any:
        logits, bias = own(self, *args, **kwargs)
        return 0.1 * torch.tanh(logits / 0.1), bias

    refused = pytest.raises(UnsupportedHeadError, match=r"its forward is defined in .*capped")
    with mock.patch.object(ColumnParallelLinear, "forward", capped), refused:
        call_with_processor(model, LogProbs(), **inputs)
    assert torch.equal(call_with_processor(model, LogProbs(), **inputs), expected)
