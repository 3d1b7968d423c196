"""`torch.compile(fullgraph=True)`: the values and gradients of eager, bit for bit, and errors where it cannot be."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from fused_head.oracle import grad_of, make_inputs
from harness import on_ranks
from torch import Tensor

from mcore_unpatch.compat import LogprobOptions, LogprobOutput, linear_logprob

Results = list[Tensor]


def plain(hidden: Tensor, weight: Tensor, labels: Tensor, arguments: dict[str, Any]) -> LogprobOutput:
    return linear_logprob(hidden * 2, weight, labels, **arguments)


def in_a_graph(backend: str = "aot_eager") -> Callable[..., LogprobOutput]:
    torch._dynamo.reset()
    return torch.compile(plain, fullgraph=True, backend=backend)


def run(
    call: Callable[..., LogprobOutput], tokens: tuple[int, ...] = (2, 5), share: Any = None, **given: Any
) -> Results:
    """Results, and the gradients of a loss of all of them."""
    made = make_inputs(tokens, 16, 40)
    labels = made.labels.clone()
    labels[0, :2] = torch.tensor([-100, 77])  # left out, and no token
    weight = made.weight if share is None else made.weight[share]
    hidden, weight = made.hidden.requires_grad_(), weight.clone().requires_grad_()
    out = call(hidden, weight, labels, given)
    assert (out.entropy is not None) == given.get("entropy", False)
    results = [value for value in out if value is not None]
    torch.autograd.backward(results, [made.logprob_grad, made.entropy_grad][: len(results)])
    return [*(value.detach() for value in results), grad_of(hidden), grad_of(weight)]


def assert_same(found: Results, expected: Results) -> None:
    assert len(found) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


CASES: dict[str, dict[str, Any]] = {
    "log-probs alone": {},
    "entropy": {"entropy": True, "temperature": 0.7},
    "a temperature for each token": {"entropy": True, "temperature": torch.linspace(0.5, 1.5, 10).view(2, 5)},
    "mask": {"entropy": True, "mask": torch.tensor([[1, 0, 1, 1, 1], [1, 1, 0, 0, 1]])},
    "padding": {"vocab_size": 33, "ignore_index": None},
    "options": {
        "entropy": True,
        "options": LogprobOptions(logit_scale=0.3, out_of_vocab_grad="legacy", max_rows=10, tile_bytes=4000),
    },
}


@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
@pytest.mark.parametrize("case", CASES)
def test_a_graph_gives_what_eager_gives(case: str, compiler: str) -> None:
    assert_same(run(in_a_graph(compiler), **CASES[case]), run(plain, **CASES[case]))


def test_one_graph_for_every_number_of_tokens() -> None:
    call = torch.compile(plain, fullgraph=True, backend="aot_eager", dynamic=True)
    for tokens in ((2, 5), (3, 7), (2, 4)):
        assert_same(run(call, tokens, entropy=True), run(plain, tokens, entropy=True))


@pytest.mark.parametrize("frozen", ["hidden", "weight", "both"])
def test_only_the_gradients_that_are_needed(frozen: str) -> None:
    made = make_inputs((2, 5), 16, 40)
    found = []
    for call in (in_a_graph(), plain):
        hidden = made.hidden.clone().requires_grad_(frozen == "weight")
        weight = made.weight.clone().requires_grad_(frozen == "hidden")
        out = call(hidden, weight, made.labels, {"entropy": True})
        assert out.logprobs.requires_grad == (frozen != "both")
        if frozen != "both":
            out.logprobs.sum().backward()  # nobody asks for the entropy's gradient
        found.append([x.grad for x in (hidden, weight) if x.grad is not None])
    assert_same(*found)
    assert len(found[0]) == (frozen != "both")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"keep_bytes": 100}, "keep_bytes: expected 0 under torch.compile, .* got 100; call linear_logprob from a"),
        ({"options": LogprobOptions(fuse_main_grad=True)}, "fuse_main_grad: expected False under torch.compile"),
        ({"mask": torch.ones(3)}, r"mask: expected shape \[2, 5\] to match hidden without h, got \[3\]"),
    ],
)
def test_what_a_graph_cannot_do_is_said(given: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        run(in_a_graph(), **given)


@on_ranks(2, release="0.19.2")
def test_a_group_or_its_name() -> None:
    mine = slice(0, 20) if dist.get_rank() == 0 else slice(20, 40)
    group = dist.group.WORLD
    assert group is not None
    truth = run(plain, share=mine, entropy=True, tp_group=group)
    for given in (group, group.group_name):
        assert_same(run(in_a_graph(), share=mine, entropy=True, tp_group=given), truth)
        assert_same(run(plain, share=mine, entropy=True, tp_group=given), truth)
    with pytest.raises(ValueError, match=r"tp_group: expected a process group or the name of one .* got 'nobody'"):
        run(plain, share=mine, tp_group="nobody")
