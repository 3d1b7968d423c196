"""`linear_kl` against the plain mathematics in float64: values, gradients of student and teacher, TP."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from fused_head.counters import peak_memory
from fused_head.oracle import grad_of
from harness import on_ranks
from harness.rounding import assert_agree, assert_close, distance
from torch import Tensor

from mcore_unpatch.compat import linear_kl

TOKENS, VOCAB, PADDING = 23, 90, 10
KINDS = [("forward", 0.5), ("reverse", 0.5), ("jsd", 0.5), ("jsd", 0.1)]


def heads(dtype: torch.dtype, tokens: int = TOKENS, vocab: int = VOCAB + PADDING) -> list[Tensor]:
    """Hidden states and weights of student and teacher, of different hidden sizes."""
    draw = torch.Generator().manual_seed(0)
    tensors = []
    for width in (8, 12):
        tensors.append(torch.randn(tokens, width, generator=draw).to(dtype))
        tensors.append((torch.randn(vocab, width, generator=draw) * 2 / width**0.5).to(dtype))
    return tensors


def plain(
    tensors: list[Tensor], kind: str, beta: float, temperature: Any, mask: Tensor | None, words: int = VOCAB
) -> Tensor:
    divisor = temperature[:, None] if isinstance(temperature, Tensor) else temperature
    a, b = ((h @ w[:words].t() / divisor).log_softmax(-1) for h, w in (tensors[:2], tensors[2:]))
    p, q = a.exp(), b.exp()
    m = (beta * q + (1 - beta) * p).log()
    value = {
        "forward": (q * (b - a)).sum(-1),
        "reverse": (p * (a - b)).sum(-1),
        "jsd": beta * (q * (b - m)).sum(-1) + (1 - beta) * (p * (a - m)).sum(-1),
    }[kind]
    return value if mask is None else value.where(mask != 0, 0)


def results(function: Any, tensors: list[Tensor]) -> dict[str, Tensor]:
    leaves = [x.clone().requires_grad_() for x in tensors]
    value = function(leaves)
    (value * torch.linspace(-1, 2, len(value), dtype=value.dtype, device=value.device)).sum().backward()
    names = ("student", "student weight", "teacher", "teacher weight")
    return {"value": value.detach()} | {name: grad_of(leaf) for name, leaf in zip(names, leaves, strict=True)}


def check(dtype: torch.dtype, kind: str, beta: float, group: Any = None, **options: Any) -> None:
    tensors = heads(dtype)
    mask, temperature = options.get("mask"), options.get("temperature", 1.0)
    exact = [x.double() for x in tensors]
    truth = results(lambda leaves: plain(leaves, kind, beta, temperature, mask), exact)
    if group is not None:
        shard = lambda x: x.chunk(group.size())[group.rank()]  # noqa: E731
        tensors = [tensors[0], shard(tensors[1]), tensors[2], shard(tensors[3])]
        truth |= {name: shard(truth[name]) for name in ("student weight", "teacher weight")}
    call: dict[str, Any] = {"kind": kind, "beta": beta, "vocab_size": VOCAB, "tp_group": group} | options
    found = results(lambda leaves: linear_kl(*leaves, **call), tensors)
    for name, value in truth.items():  # each by itself: a gradient is not measured against a larger one
        assert_agree({name: found[name]}, {name: value}, dtype)


@pytest.mark.parametrize(("kind", "beta"), KINDS)
@pytest.mark.parametrize("tile_bytes", [None, 8_000])
def test_values_and_gradients(kind: str, beta: float, tile_bytes: int | None) -> None:
    """test_combinations.py has every option at once."""
    temperature = torch.rand(TOKENS, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 0.5
    check(torch.float64, kind, beta, tile_bytes=tile_bytes, mask=torch.arange(TOKENS) % 3, temperature=temperature)
    check(torch.float32, kind, beta, tile_bytes=tile_bytes)


@on_ranks(2, release="0.19.2")
def test_two_ranks() -> None:
    for kind, beta in KINDS:
        check(torch.float64, kind, beta, dist.group.WORLD)


@pytest.mark.parametrize(("kind", "beta"), KINDS)
def test_autocast_changes_nothing(kind: str, beta: float) -> None:
    tensors = heads(torch.float32)
    expected = results(lambda given: linear_kl(*given, kind=kind, beta=beta), tensors)
    with torch.autocast("cpu", torch.bfloat16):
        found = results(lambda given: linear_kl(*given, kind=kind, beta=beta), tensors)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(("kind", "beta"), KINDS)
def test_close_heads_leave_a_gradient_where_bfloat16_logits_leave_none(kind: str, beta: float) -> None:
    """A student at a distance of 0.01: its logits and the teacher's round to nearly the same numbers."""
    draw = torch.Generator().manual_seed(0)
    hidden, teacher = torch.randn(64, 256, generator=draw), torch.randn(500, 256, generator=draw) / 8
    student = teacher + 0.01 * torch.randn(500, 256, generator=draw) / 16
    tensors = [x.bfloat16() for x in (hidden, student, hidden, teacher)]

    def gradient(function: Any, given: list[Tensor]) -> Tensor:
        leaf = given[1].clone().requires_grad_()
        function([given[0], leaf, *given[2:]]).sum().backward()
        return grad_of(leaf)

    whole = lambda given: plain(given, kind, beta, 1.0, None, words=500)  # noqa: E731
    truth = gradient(whole, [x.double() for x in tensors])
    found = gradient(lambda given: linear_kl(*given, kind=kind, beta=beta), tensors)
    assert_close(found, truth, torch.bfloat16, stores=2)
    assert distance(gradient(whole, tensors), truth) > 0.3


def test_a_teacher_elsewhere_is_refused() -> None:
    student, weight, *teacher = heads(torch.float32)
    with pytest.raises(ValueError, match="teacher_hidden: expected device cpu, got meta"):
        linear_kl(student, weight, *(one.to("meta") for one in teacher))


def test_equal_heads_are_not_apart() -> None:
    hidden, weight = heads(torch.float32)[:2]
    for kind, beta in KINDS:
        apart = linear_kl(hidden, weight, hidden, weight, kind=kind, beta=beta)  # type: ignore[arg-type]
        # A mean of logarithms of ratios that are all one: that is what rounding is measured against.
        assert_close(1 + apart.double(), torch.ones(TOKENS, dtype=torch.float64), sums=VOCAB + PADDING)


def test_a_detached_teacher_costs_no_product() -> None:
    tensors = heads(torch.float32)
    student = [x.requires_grad_() for x in tensors[:2]]
    linear_kl(*student, *tensors[2:]).sum().backward()
    assert all(x.grad is not None for x in student)
    assert all(x.grad is None for x in tensors[2:])


@pytest.mark.slow
def test_memory_is_one_tile() -> None:
    tensors = heads(torch.float32, tokens=300, vocab=4_000)
    with peak_memory() as memory:
        student = [one.requires_grad_() for one in tensors[:2]]
        linear_kl(*student, *tensors[2:], kind="jsd", tile_bytes=300_000).sum().backward()
    assert memory.peak < 300_000 * 2.5 + 300 * 300 < 2 * 300 * 4_000 * 4 / 10  # of the logits of both


def test_main_grad_of_the_student() -> None:
    tensors = heads(torch.float32)
    weight: Any = torch.nn.Parameter(tensors[1])
    weight.main_grad = torch.ones_like(weight)
    linear_kl(tensors[0], weight, *tensors[2:], fuse_main_grad=True).sum().backward()
    leaf = tensors[1].clone().requires_grad_()
    linear_kl(tensors[0], leaf, *tensors[2:]).sum().backward()
    assert_close(weight.main_grad, 1 + grad_of(leaf))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "backward"}, "kind: expected 'forward', 'reverse' or 'jsd', got 'backward'"),
        ({"beta": 1.0}, "beta: expected a number between 0 and 1, got 1.0"),
        ({"tokens": 5}, r"teacher_hidden: expected shape \[23\] \+ \[h\], got \[5, 12\]"),
        ({"vocab": 7}, "teacher_weight: expected 100 rows to match the student, got 7 rows"),
    ],
)
def test_errors(change: dict[str, Any], message: str) -> None:
    hidden, weight, teacher_hidden, teacher_weight = heads(torch.float32)
    teacher_hidden = teacher_hidden[: change.pop("tokens", TOKENS)]
    teacher_weight = teacher_weight[: change.pop("vocab", VOCAB + PADDING)]
    with pytest.raises(ValueError, match=message):
        linear_kl(hidden, weight, teacher_hidden, teacher_weight, **change)
