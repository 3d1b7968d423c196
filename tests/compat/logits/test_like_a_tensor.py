"""What code for tensors may do to lazy logits: whatever works gives what the real logits give, the rest raises."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from harness.rounding import assert_close
from logits.lazily import BATCH, HIDDEN, LENGTH, VOCAB, lazy
from torch import Tensor

from mcore_unpatch.compat import LazyLogits, ProcessGroups
from mcore_unpatch.compat.logits.lazy import LMHead

PER_TOKEN = torch.linspace(0.5, 2, BATCH * LENGTH).view(BATCH, LENGTH, 1)
KEEP = torch.arange(BATCH * LENGTH).view(BATCH, LENGTH) % 3 != 1


WORKS: list[Callable[[Any], Any]] = [
    lambda z: z[0],
    lambda z: z[1, 2],
    lambda z: z[:, 1:-1],
    lambda z: z[:, 1:-1, :],
    lambda z: z[..., -1, :],
    lambda z: z[..., :],
    lambda z: z[:, :, : VOCAB + 5],
    lambda z: z[1, ...],
    lambda z: z[None, 0],
    lambda z: z[KEEP],
    lambda z: z[:, torch.tensor([3, 0, 3])],
    lambda z: z[[1, 0]],
    lambda z: z[0][0:0],
    lambda z: z[:1].squeeze(0),
    lambda z: z.squeeze(0),
    lambda z: z.squeeze(-1),
    lambda z: z[:1].squeeze((0, 1)),
    lambda z: z.permute(1, 0, 2),
    lambda z: z[:1, 2:3].squeeze(),
    lambda z: z.unbind(1)[2],
    lambda z: torch.index_select(z, 1, torch.tensor([4, 0, 4])),
    lambda z: z.unsqueeze(1),
    lambda z: z.unsqueeze(-2),
    lambda z: z.transpose(0, 1).contiguous(),
    lambda z: z.view(-1, z.size(-1)),
    lambda z: z.reshape((3, 4, VOCAB)),
    lambda z: z.reshape(12, -1),
    lambda z: z.flatten(0, 1),
    lambda z: z.flatten(end_dim=1),
    lambda z: z.chunk(4, dim=1)[2],
    lambda z: z.split([1, 5], dim=1)[1],
    lambda z: torch.split(z, 4, dim=1)[1],
    lambda z: z.narrow(1, 2, 3),
    lambda z: z.float().to(torch.float32, copy=True).to("cpu"),
    lambda z: z.detach(),
    lambda z: z / 1.7,
    lambda z: z.div(2).div(torch.tensor(0.7)),
    lambda z: (z / PER_TOKEN)[:, 2:4],
    lambda z: (z / PER_TOKEN / 3).view(-1, VOCAB)[5:],
    lambda z: torch.cat([z[0, :2], z[1, 3:]]),
    lambda z: torch.cat([z[:, :2] / 2, z[:, 3:]], dim=1),
    lambda z: torch.cat([*(z / PER_TOKEN)], dim=0),
    lambda z: next(iter(z)),
    lambda z: z.select(1, 3),
    lambda z: z.clone(memory_format=torch.contiguous_format),
    lambda z: z.contiguous(memory_format=torch.contiguous_format),
    lambda z: z.to(torch.zeros(1)),
    lambda z: z.type_as(torch.zeros(1)),
    lambda z: z * 0.5,
    lambda z: 2 * z,
    lambda z: z * PER_TOKEN,
    lambda z: z.mul(3),
    lambda z: z.true_divide(2),
    lambda z: torch.true_divide(z, 2),
    lambda z: z / np.float32(0.5),
    lambda z: z * np.float64(0.7),
    lambda z: z / PER_TOKEN.bfloat16(),
    lambda z: torch.narrow(z, 1, 2, 3),
    lambda z: z[0, torch.tensor([[1, 0], [3, 5]])],
    lambda z: z[torch.tensor([[1, 0], [0, 1]])],
    lambda z: z.reshape(2, 6, -1),
    lambda z: z * torch.tensor(0.5),
    lambda z: z.to("cpu", torch.float32).to(dtype=torch.float32, device="cpu"),
    lambda z: z.transpose(1, 0),
    lambda z: z.split(2)[0],
    lambda z: z.chunk(2)[1],
    lambda z: z.flatten(1, 1),
    lambda z: z.unbind()[1],
    lambda z: z.flatten(0, end_dim=1),
    lambda z: z.flatten(start_dim=0, end_dim=1),
    lambda z: z.transpose(0, dim1=1),
    lambda z: z.transpose(dim0=1, dim1=0),
    lambda z: z[:1].squeeze(dim=0),
    lambda z: z.select(dim=0, index=1),
    lambda z: z.index_select(dim=0, index=torch.tensor([1])),
    lambda z: z.narrow(dim=1, start=2, length=3),
    lambda z: z.split(split_size=2, dim=1)[1],
    lambda z: z.unbind(dim=1)[3],
    lambda z: torch.unsqueeze(z, 0),
    lambda z: torch.reshape(z, (12, VOCAB)),
    lambda z: torch.flatten(z, 0, 1),
    lambda z: torch.transpose(z, 0, 1),
    lambda z: torch.select(z, 0, 1),
    lambda z: torch.squeeze(z[:1], 0),
    lambda z: torch.chunk(z, 2)[1],
    lambda z: torch.unbind(z, 1)[0],
    lambda z: torch.div(z, 3),
    lambda z: torch.mul(z, 3),
    lambda z: torch.clone(z),
    lambda z: torch.detach(z),
    lambda z: torch.true_divide(z, 3),
    lambda z: torch.permute(z, (1, 0, 2)),
    lambda z: torch.narrow(z, 1, 1, 2),
    lambda z: torch.index_select(z, 1, torch.tensor([2, 0])),
    lambda z: torch.split(z, 2, 1)[0],
]


@pytest.mark.parametrize("change", WORKS)
def test_tokens_are_selected_and_rearranged_as_those_of_real_logits(change: Callable[[Any], Any]) -> None:
    ours, theirs = lazy(), lazy()
    real = theirs.logits()
    found, expected = change(ours), change(real)
    assert (found.shape, found.dtype, found.device) == (expected.shape, expected.dtype, expected.device)
    assert (found.dim(), found.ndim, found.size(-1)) == (expected.dim(), expected.ndim, expected.size(-1))
    assert found.requires_grad == expected.requires_grad
    assert (found.numel(), found.is_cuda, len(found)) == (expected.numel(), expected.is_cuda, len(expected))
    assert_close(found.logits().detach(), expected.detach())
    level = -(expected.softmax(-1) * expected.log_softmax(-1)).sum(-1)
    assert_close(found.entropy().detach(), level.detach())
    assert_close(found.sum().detach(), expected.sum().detach())
    assert_close(torch.sum(found).detach(), torch.sum(expected).detach())
    if len(expected):
        assert_close(torch.mean(found).detach(), torch.mean(expected).detach())
    assert torch.numel(found) == torch.numel(expected)
    assert (torch.is_floating_point(found), torch.is_complex(found)) == (True, False)
    if not expected.requires_grad:
        assert not found.entropy().requires_grad
        return
    torch.autograd.backward(found.entropy().sin().sum())
    torch.autograd.backward(level.sin().sum())
    assert_close(ours.hidden.grad, theirs.hidden.grad)
    assert_close(ours.head.weight.grad, theirs.head.weight.grad)


_NAMES = ("add", "sub", "matmul", "pow", "mod", "floordiv", "and", "or", "xor")
BINARY = [f"__{side}{name}__" for name in _NAMES for side in ("", "r", "i")]
BINARY += ["__itruediv__", "__imul__", "__lt__", "__le__", "__gt__", "__ge__"]
RAISES: list[Callable[[Any], Any]] = [
    lambda z: z.softmax(-1),
    lambda z: torch.softmax(z, -1),
    lambda z: torch.nn.functional.log_softmax(z, dim=-1),
    lambda z: z.max(-1),
    lambda z: z.sum(-1),
    lambda z: torch.sum(z, dim=-1),
    lambda z: torch.topk(z, 2),
    lambda z: z.div_(2),
    lambda z: z.bfloat16(),
    lambda z: z.to(torch.bfloat16),
    lambda z: z.to("meta"),
    lambda z: z == 0.0,
    lambda z: z != torch.zeros(1),
    lambda z: 3.0 in z,
    lambda z: z * torch.ones(VOCAB),
    lambda z: z * z,
    lambda z: z / z,
    lambda z: z * 0,
    lambda z: z * -2.0,
    lambda z: z + torch.ones(1),
    lambda z: torch.ones(1) + z,
    lambda z: torch.ones(1) / z,
    lambda z: -z,
    lambda z: z[..., :5],
    lambda z: z[..., 0],
    lambda z: z[:, :, None, 3],
    lambda z: z[0, 0, 7],
    lambda z: z[..., None],
    lambda z: z.view(-1),
    lambda z: z.transpose(1, 2),
    lambda z: z.flatten(),
    lambda z: z.chunk(2, dim=-1),
    lambda z: z.unsqueeze(-1),
    lambda z: torch.cat([z, z], dim=-1),
    lambda z: torch.cat([z, torch.zeros(z.shape)]),
    lambda z: torch.cat([z, lazy()]),
    lambda z: torch.stack([z, lazy()]),
    lambda z: z.permute(2, 0, 1),
    lambda z: z.select(-1, 0),
    lambda z: z.to(torch.zeros(1, dtype=torch.float64)),
    lambda z: z.to(torch.zeros(1, device="meta")),
    lambda z: z.contiguous(memory_format=torch.channels_last),
    lambda z: copy.deepcopy(z),
    lambda z: pickle.dumps(z),
    lambda z: np.asarray(z),
    lambda z: z + np.float32(1),
    lambda z: np.float32(1) + z,
    lambda z: np.float64(2) - z,
    lambda z: z.numpy(),
    lambda z: z.tolist(),
    lambda z: z.item(),
    lambda z: z % 2,
    lambda z: z // 2,
    lambda z: 2**z,
    lambda z: 3 // z,
    lambda z: z & 1,
    lambda z: ~z,
    lambda z: round(z),
    lambda z: z.half(),
    lambda z: z.view(torch.int32),
    lambda z: z.ne(0),
    lambda z: z.backward(),
    lambda z: torch.ones_like(z),
    lambda z: z.new_zeros(3, VOCAB),
    lambda z: torch.save(z, io.BytesIO()),
    lambda z: z.cpu(),
    lambda z: bool(z),
    lambda z: z.__setitem__(0, 1.0),
    lambda z: torch.zeros(z.shape).__setitem__(0, z),
    lambda z: z.__array__(),
    lambda z: z * True,
    lambda z: z * float("inf"),
    lambda z: z * float("nan"),
    lambda z: z.unsqueeze(3),
    lambda z: z.reshape(4, -1),
    lambda z: z.reshape(12, 16, 2),
    lambda z: z.reshape(()),
    lambda z: z.to(memory_format=torch.channels_last),
    lambda z: torch.softmax(input=z, dim=-1),
    lambda z: torch.unsqueeze(input=z, dim=0),
    lambda z: torch.mul(2, z),
    lambda z: torch.hstack([z, z]),
    lambda z: torch.hstack((z, z)),
    lambda z: z.unsqueeze(-1),
    lambda z: z.split(2, -1),
    lambda z: z.flatten(1, 2),
    lambda z: z.index_select(2, torch.tensor([0])),
    lambda z: z.unbind(2),
    *(lambda z, name=name: getattr(z, name)() for name in ("__pos__", "__abs__", "__float__", "__int__")),
    *(lambda z, name=name: getattr(z, name)(2) for name in BINARY),
]


@pytest.mark.parametrize("misuse", RAISES)
def test_everything_else_names_the_cause_and_the_way_out(misuse: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"needs real logits, and this model returns LazyLogits.*\.logits\(\)"):
        misuse(lazy())


def test_errors_say_what_the_logits_would_take() -> None:
    vocabulary = torch.empty(151_936, HIDDEN, device="meta")
    head = LMHead.of(vocabulary, groups=ProcessGroups())
    logits = LazyLogits(torch.empty(1, 4096, HIDDEN, device="meta"), head)
    with pytest.raises(TypeError, match=r"\[1, 4096, 151936\] with \.logits\(\), which takes 2\.3 GiB"):
        logits.softmax(-1)
    assert repr(logits) == "LazyLogits(shape=[1, 4096, 151936], device=meta, temperature=1.0)"


def test_two_objects_are_equal_if_they_are_one() -> None:
    one, other = lazy(), lazy()
    assert one == one
    assert one != other
    assert one != None  # noqa: E711
    assert len({one, other, one}) == 2


def test_attributes_are_asked_for_as_of_any_object() -> None:
    assert not hasattr(lazy(), "softmax")
    assert not hasattr(lazy(), "no_such_thing")
    assert getattr(lazy(), "grad_fn", None) is None
    for name in ("no_such_thing", "__dlpack__", "__cuda_array_interface__"):  # what is no name of a method, is no hint
        with pytest.raises(AttributeError, match=f"LazyLogits has no attribute '{name}'"):
            getattr(lazy(), name)


@pytest.mark.parametrize("temperature", ["1", True, PER_TOKEN.squeeze(-1), PER_TOKEN[:, :, 0, None].expand(2, 6, 32)])
def test_a_wrong_temperature_is_refused(temperature: Any) -> None:
    with pytest.raises(TypeError, match="temperature: expected a number"):
        lazy() / temperature


@pytest.mark.parametrize("others", [(), (1.7,), (1.7, 1.7), (1.0,), (1.7, 1.0), (torch.tensor(1.7),), (PER_TOKEN,)])
def test_joined_logits_have_one_temperature_where_all_have_the_same(others: tuple[Any, ...]) -> None:
    z = lazy()
    joined = torch.cat([z / temperature for temperature in (1.7, *others)])
    alike = all(other == 1.7 for other in others if not isinstance(other, Tensor))
    if alike and not any(isinstance(other, Tensor) for other in others):
        assert joined.temperature == 1.7
        assert isinstance(joined.temperature, float)
    else:
        each = [torch.as_tensor(temperature).expand(BATCH, LENGTH, 1) for temperature in (1.7, *others)]
        assert_close(joined.temperature, torch.cat(each))


def test_a_teacher_must_be_lazy_logits() -> None:
    with pytest.raises(TypeError, match="expected the LazyLogits of another model, got Tensor"):
        lazy().kl(torch.zeros(1))  # type: ignore[arg-type]


TEMPERATURES: list[tuple[Any, Any]] = [(PER_TOKEN, PER_TOKEN.clone()), (PER_TOKEN, 1.0), (0.7, 2.0), (3.0, PER_TOKEN)]


@pytest.mark.parametrize("kind", ["forward", "reverse", "jsd"])
@pytest.mark.parametrize("temperatures", TEMPERATURES)
def test_the_divergence_of_logits_with_their_own_temperatures(temperatures: tuple[Any, Any], kind: Any) -> None:
    own, others = temperatures
    student, teacher = lazy() / own, lazy()
    other = teacher._with(teacher.hidden.roll(1, 1).detach().requires_grad_(), 1.0) / others
    p, q = student.logits().double().log_softmax(-1), other.logits().double().log_softmax(-1)
    m = ((p.exp() + q.exp()) / 2).log()
    forward, reverse = (q.exp() * (q - p)).sum(-1), (p.exp() * (p - q)).sum(-1)
    jsd = ((q.exp() * (q - m)).sum(-1) + (p.exp() * (p - m)).sum(-1)) / 2
    expected = {"forward": forward, "reverse": reverse, "jsd": jsd}[kind]
    found: Tensor = student.kl(other, kind=kind)
    assert_close(found.detach(), expected.detach())
    tensors = (student.hidden, student.head.weight, other.hidden, other.head.weight)
    ours, theirs = (torch.autograd.grad(value.sin().sum(), tensors) for value in (found, expected))
    for one, another in zip(ours, theirs, strict=True):
        assert_close(one, another)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_temperature_of_another_dtype_costs_no_digits(dtype: torch.dtype) -> None:
    narrow = PER_TOKEN.to(dtype)
    twice = lazy() / narrow / narrow
    exact = lazy() / narrow.float() / narrow.float()
    assert twice.dtype == twice.logits().dtype == twice.entropy().dtype == torch.float32
    assert_close(twice.logits().detach(), exact.logits().detach())


def test_questions_that_need_no_logits() -> None:
    logits = lazy()
    assert logits.is_contiguous()
    assert torch.is_floating_point(logits)
    assert logits.is_floating_point()
    assert logits.stride() == logits.logits().stride()
    assert (logits.element_size(), logits.layout, logits.nbytes) == (4, torch.strided, logits.logits().nbytes)


def test_more_indices_than_dimensions_are_an_error_as_of_a_tensor() -> None:
    with pytest.raises(IndexError, match=r"too many indices for logits \[2, 6, 32\]: 4"):
        _ = lazy()[0, 0, 0, 0]


def test_new_zeros_of_another_shape_are_zeros() -> None:
    found = (lazy() / 2).new_zeros((0,))
    assert torch.is_tensor(found)
    assert (found.shape, found.dtype) == ((0,), torch.float32)
    assert lazy().new_zeros(VOCAB).tolist() == [0.0] * VOCAB
    assert lazy().new_zeros(VOCAB, 2).shape == (VOCAB, 2)


def test_float64_heads_give_float64() -> None:
    logits = lazy(torch.float64)
    assert logits.dtype == logits.entropy().dtype == logits.logits().dtype == torch.float64
    with pytest.raises(TypeError, match="needs real logits"):
        logits.float()


QUANTITIES: dict[str, Callable[[LazyLogits, dict[str, Tensor]], list[Tensor]]] = {
    "log_probs": lambda z, mask: [z.log_probs(torch.ones_like(KEEP, dtype=torch.long), **mask)],
    "log_probs_at": lambda z, mask: [z.log_probs_at(torch.ones(*KEEP.shape, 2, dtype=torch.long), **mask)],
    "entropy": lambda z, mask: [z.entropy(**mask)],
    "top_k": lambda z, mask: list(z.top_k(2, **mask).values()),
    "sum_pi_squared": lambda z, mask: [z.sum_pi_squared(**mask)],
    "logit_stats": lambda z, mask: list(z.logit_stats(**mask).values()),
    "kl": lambda z, mask: [z.kl(lazy() / 2, **mask)],
}


@pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=QUANTITIES)
def test_a_mask_leaves_tokens_out_of_every_quantity(
    quantity: Callable[[LazyLogits, dict[str, Tensor]], list[Tensor]],
) -> None:
    for masked, whole in zip(quantity(lazy(), {"mask": KEEP}), quantity(lazy(), {}), strict=True):
        assert_close(masked[KEEP].double(), whole[KEEP].double())
        assert not masked[~KEEP].any()
        assert whole[~KEEP].any()
