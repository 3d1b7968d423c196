"""The plain mathematics the operator is held to: logits built whole, log-softmax, autograd."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from harness.rounding import assert_agree, distance
from torch import Tensor

from mcore_unpatch import compat
from mcore_unpatch.compat import LogprobOptions

Results = Mapping[str, Tensor]
error = distance  # in relative norm


def linear_logprob(hidden: Tensor, weight: Tensor, labels: Tensor, **arguments: Any) -> compat.LogprobOutput:
    """The operator, its options given beside its arguments."""
    options = {name: arguments.pop(name) for name in LogprobOptions.__dataclass_fields__ if name in arguments}
    return compat.linear_logprob(hidden, weight, labels, **arguments, options=LogprobOptions(**options))


@dataclass(frozen=True)
class Inputs:
    """One call: tensors, and the gradients its two results receive."""

    hidden: Tensor
    weight: Tensor
    labels: Tensor
    logprob_grad: Tensor
    entropy_grad: Tensor

    def in_float64(self) -> "Inputs":
        """The same numbers, the rounding of hidden to the weight's dtype included: it is part of the contract."""
        return replace(self, hidden=self.hidden.to(self.weight.dtype).double(), weight=self.weight.double())


def make_inputs(
    tokens: int | tuple[int, ...],
    hidden: int,
    vocab: int,
    dtype: torch.dtype = torch.float32,
    hidden_dtype: torch.dtype | None = None,
    seed: int = 0,
) -> Inputs:
    """Random inputs whose logits have a spread of about 2, like a model's."""
    draw = torch.Generator().manual_seed(seed)
    shape = (tokens,) if isinstance(tokens, int) else tokens
    return Inputs(
        hidden=torch.randn(*shape, hidden, generator=draw).to(hidden_dtype or dtype),
        weight=(torch.randn(vocab, hidden, generator=draw) * 2 / hidden**0.5).to(dtype),
        labels=torch.randint(0, vocab, shape, generator=draw),
        logprob_grad=torch.randn(shape, generator=draw),
        entropy_grad=torch.randn(shape, generator=draw),
    )


def materialised(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    logit_scale: float = 1.0,
    mask: Tensor | None = None,
    entropy: bool = True,
    vocab_size: int | None = None,
    ignore_index: int | None = -100,
) -> tuple[Tensor, Tensor]:
    """The default path: the product in the weight's dtype, the softmax in float32 (float64 for float64).

    Rows without a label are 0, as those of a mask are.
    """
    product = torch.nn.functional.linear(hidden.to(weight.dtype), weight)[..., :vocab_size]
    logits = product if product.dtype == torch.float64 else product.float()
    divisor = temperature[..., None].to(logits.dtype) if isinstance(temperature, Tensor) else temperature
    log_p = (logits * logit_scale / divisor).log_softmax(-1)
    known = (labels >= 0) & (labels < log_p.shape[-1])
    kept = torch.ones_like(known) if mask is None else mask != 0
    kept = kept if ignore_index is None else kept & (labels != ignore_index)
    logprobs = log_p.gather(-1, labels.where(known, 0)[..., None]).squeeze(-1).where(known & kept, 0)
    return logprobs, -(log_p.exp() * log_p).sum(-1).where(kept, 0)


def results(function: Callable[..., tuple[Tensor, Tensor | None]], inputs: Inputs, **options: Any) -> Results:
    """Both outputs of `function` and both gradients."""
    hidden, weight = (x.detach().clone().requires_grad_() for x in (inputs.hidden, inputs.weight))
    logprobs, entropy = function(hidden, weight, inputs.labels, entropy=True, **options)
    assert entropy is not None
    (logprobs * inputs.logprob_grad).sum().add((entropy * inputs.entropy_grad).sum()).backward()
    return {
        "logprobs": logprobs.detach(),
        "entropy": entropy.detach(),
        "hidden.grad": grad_of(hidden),
        "weight.grad": grad_of(weight),
    }


def grad_of(tensor: Tensor) -> Tensor:
    """The gradient that a backward pass has left."""
    assert tensor.grad is not None
    return tensor.grad


def assert_exact(found: Results, truth: Results, inputs: Inputs, plain: Results | None = None) -> None:
    """Each result is the float64 truth but for rounding: values are float32, gradients in the weight's dtype.

    `plain` is what the materialised path has in float32: how far these numbers amplify roundings.
    """
    sums = max(inputs.labels.numel(), *inputs.weight.shape)
    for name in truth:
        dtype = inputs.weight.dtype if name.endswith(".grad") else torch.float32
        assert_agree(*({name: of[name]} for of in (found, truth)), dtype, sums, plain and {name: plain[name]})


def assert_as_exact_as_materialised(inputs: Inputs, **options: Any) -> None:
    """Each result is as near to float64 as the default path's at the same dtype, but for rounding."""
    only_ours = {"tile_bytes", "backend", "max_rows"}
    shared = {name: value for name, value in options.items() if name not in only_ours}
    truth = results(materialised, inputs.in_float64(), **shared)
    plain = results(materialised, inputs, **shared)
    found = results(linear_logprob, inputs, **options)
    assert {name: value.dtype for name, value in found.items()} == {name: value.dtype for name, value in plain.items()}
    assert_exact(found, truth, inputs, plain)
