"""Every tensor that a caller passes, written to between forward and backward: the same gradients, or an error."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from fused_head.oracle import linear_logprob, make_inputs
from fused_head.test_linear_kl import heads
from torch import Tensor

from mcore_unpatch.compat import linear_kl, vocab_pass

TOKENS, WIDTH, VOCAB = 6, 8, 40
HEADS = ("student_hidden", "student_weight", "teacher_hidden", "teacher_weight")
FLOATS = ("hidden", "weight", *HEADS)
Tensors = dict[str, Tensor]


def arguments() -> Tensors:
    """Of every call here."""
    inputs, draw = make_inputs(TOKENS, WIDTH, VOCAB), torch.Generator().manual_seed(1)
    inputs.labels[4] = -100
    return {
        "hidden": inputs.hidden,
        "weight": inputs.weight,
        "labels": inputs.labels,
        "mask": torch.tensor([1, 1, 0, 1, 1, 1]),
        "temperature": torch.rand(TOKENS, generator=draw) + 0.5,
        "token_ids": torch.randint(0, VOCAB, (TOKENS, 3), generator=draw),
        **dict(zip(HEADS, heads(torch.float32, TOKENS, VOCAB), strict=True)),
    }


def everything(**tensors: Any) -> list[Tensor]:
    out = vocab_pass(**tensors, entropy=True, topk=2, sum_pi_squared=True)
    return [value for value in vars(out).values() if value is not None]


def log_probs(**tensors: Any) -> list[Tensor]:
    logprobs, entropy = linear_logprob(**tensors, entropy=True)
    assert entropy is not None
    return [logprobs, entropy]


def compiled(**tensors: Any) -> list[Tensor]:
    torch._dynamo.reset()  # of one function only so many graphs are made
    out: list[Tensor] = torch.compile(log_probs, backend="aot_eager", fullgraph=True)(**tensors)
    return out


def divergence(kind: Any, **tensors: Any) -> list[Tensor]:
    return [linear_kl(**tensors, kind=kind)]


OF_A_CALL, OF_A_DIVERGENCE = ("hidden", "weight", "labels", "mask", "temperature"), (*HEADS, "mask", "temperature")
CALLS: dict[str, tuple[Callable[..., list[Tensor]], tuple[str, ...]]] = {
    "vocab_pass": (everything, (*OF_A_CALL, "token_ids")),
    "linear_logprob": (log_probs, OF_A_CALL),
    "torch.compile": (compiled, OF_A_CALL),
    **{kind: (partial(divergence, kind), OF_A_DIVERGENCE) for kind in ("forward", "reverse", "jsd")},
}


def gradients(name: str, spoil: str = "") -> list[Tensor]:
    """Of everything that has one; `spoil` names an argument, or is the number of a result."""
    call, names = CALLS[name]
    tensors = {key: value for key, value in arguments().items() if key in names}
    leaves = [tensors[key].requires_grad_() for key in FLOATS if key in tensors]
    results = call(**tensors)
    with torch.no_grad():
        if spoil.isdecimal():
            results[int(spoil)].detach().zero_()
        elif spoil:
            tensors[spoil].copy_(tensors[spoil].flip(0) + 1)
    draw = torch.Generator().manual_seed(2)
    loss = sum((r * torch.randn(r.shape, generator=draw)).sum() for r in results if r.requires_grad)
    assert isinstance(loss, Tensor)
    return list(torch.autograd.grad(loss, leaves))


SPOILT = [(name, spoil) for name, (_, names) in CALLS.items() for spoil in names]


@pytest.mark.parametrize(("name", "spoil"), [*SPOILT, *(("vocab_pass", str(result)) for result in range(7))])
def test_what_is_written_to_changes_no_gradient_in_silence(name: str, spoil: str) -> None:
    try:
        found = gradients(name, spoil)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        assert all(torch.equal(*pair) for pair in zip(found, gradients(name), strict=True))
