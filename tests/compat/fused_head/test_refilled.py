"""Every tensor that a caller passes, written to between forward and backward: the same gradients, or an error."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fused_head.oracle import linear_logprob, make_inputs
from fused_head.test_linear_kl import heads
from torch import Tensor

from mcore_unpatch.compat import linear_kl, vocab_pass

TOKENS, WIDTH, VOCAB = 6, 8, 40
Tensors = dict[str, Tensor]


def of_a_pass(dtype: torch.dtype = torch.float32) -> Tensors:
    inputs = make_inputs(TOKENS, WIDTH, VOCAB, dtype)
    draw = torch.Generator().manual_seed(1)
    labels = inputs.labels.clone()
    labels[4] = -100
    return {
        "hidden": inputs.hidden,
        "weight": inputs.weight,
        "labels": labels,
        "mask": torch.tensor([1, 1, 0, 1, 1, 1]),
        "temperature": torch.rand(TOKENS, generator=draw) + 0.5,
        "token_ids": torch.randint(0, VOCAB, (TOKENS, 3), generator=draw),
    }


def everything(tensors: Tensors) -> list[Tensor]:
    asked = dict(tensors)
    out = vocab_pass(asked.pop("hidden"), asked.pop("weight"), entropy=True, topk=2, sum_pi_squared=True, **asked)
    return [value for value in vars(out).values() if value is not None]


def of_a_call() -> Tensors:
    return {name: value for name, value in of_a_pass().items() if name != "token_ids"}


def log_probs(tensors: Tensors) -> list[Tensor]:
    logprobs, entropy = linear_logprob(**tensors, entropy=True)  # type: ignore[arg-type]
    assert entropy is not None
    return [logprobs, entropy]


def compiled(tensors: Tensors) -> list[Tensor]:
    torch._dynamo.reset()  # of one function only so many graphs are made
    out: list[Tensor] = torch.compile(log_probs, backend="aot_eager", fullgraph=True)(tensors)
    return out


def divergence(kind: str) -> Callable[[Tensors], list[Tensor]]:
    def call(tensors: Tensors) -> list[Tensor]:
        names = ("student_hidden", "student_weight", "teacher_hidden", "teacher_weight")
        rest: Any = {name: value for name, value in tensors.items() if name not in names}
        return [linear_kl(*(tensors[name] for name in names), kind=kind, **rest)]  # type: ignore[arg-type]

    return call


def of_a_divergence(dtype: torch.dtype = torch.float32) -> Tensors:
    student, weight, teacher, others = heads(dtype, TOKENS, VOCAB)
    tensors = {"student_hidden": student, "student_weight": weight, "teacher_hidden": teacher, "teacher_weight": others}
    own = of_a_pass()
    return tensors | {"mask": own["mask"], "temperature": own["temperature"]}


CALLS: dict[str, tuple[Callable[[Tensors], list[Tensor]], Callable[[], Tensors]]] = {
    "vocab_pass": (everything, of_a_pass),
    "linear_logprob": (log_probs, of_a_call),
    "torch.compile": (compiled, of_a_call),
    **{kind: (divergence(kind), of_a_divergence) for kind in ("forward", "reverse", "jsd")},
}
FLOATS = ("hidden", "weight", "student_hidden", "student_weight", "teacher_hidden", "teacher_weight")


def gradients(name: str, spoil: str = "") -> list[Tensor]:
    """Of everything that has one; `spoil` names an argument, or is the number of a result."""
    call, make = CALLS[name]
    tensors = {key: value.clone() for key, value in make().items()}
    leaves = [tensors[key].requires_grad_() for key in FLOATS if key in tensors]
    results = call(tensors)
    with torch.no_grad():
        if spoil.isdecimal():
            results[int(spoil)].detach().zero_()
        elif spoil:
            written = tensors[spoil]
            written.copy_(~written if written.dtype == torch.bool else written.flip(0) + 1)
    draw = torch.Generator().manual_seed(2)
    loss = sum((r * torch.randn(r.shape, generator=draw)).sum() for r in results if r.requires_grad)
    assert isinstance(loss, Tensor)
    return list(torch.autograd.grad(loss, leaves))


def same_or_refused(name: str, spoil: str) -> None:
    try:
        found = gradients(name, spoil)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        assert all(torch.equal(*pair) for pair in zip(found, gradients(name), strict=True))


@pytest.mark.parametrize(("name", "spoil"), [(name, spoil) for name, (_, make) in CALLS.items() for spoil in make()])
def test_an_argument_refilled(name: str, spoil: str) -> None:
    same_or_refused(name, spoil)


@pytest.mark.parametrize("result", [str(number) for number in range(7)])
def test_a_result_overwritten(result: str) -> None:
    same_or_refused("vocab_pass", result)
