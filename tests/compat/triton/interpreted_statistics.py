"""All statistics and kept columns, by the TMA and by pointers: by Triton's interpreter, or on a GPU.

`test_interpreted.py` runs this file; on a GPU: `pytest tests/compat/triton/interpreted_statistics.py`.
"""

from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from fused_head.all_statistics import check_statistics
from fused_head.confident_rows import check_kept_is_no_worse
from fused_head.oracle import Inputs, grad_of, linear_logprob, make_inputs
from harness import run_on_ranks
from harness.rounding import assert_close
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mcore_unpatch.compat import vocab_pass
from mcore_unpatch.compat.fused_head.torch_backend import TorchBackend
from mcore_unpatch.compat.fused_head.triton import grad_kernel, launch

HALF = torch.float16
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ALL = 1 << 30
SHAPE = (
    140,
    16,
    500,
)  # two blocks of rows, two of columns: the interpreter takes as long for a block as it may be large
SOME = 140 * 600  # one block of columns is kept


@pytest.fixture(autouse=True, params=[True, False], ids=["tma", "pointers"])
def _no_way_round(request: pytest.FixtureRequest) -> Any:
    with (
        mock.patch.object(TorchBackend, "forward", side_effect=AssertionError("torch backend")),
        mock.patch.object(launch, "has_tma", return_value=request.param),
    ):
        yield


def half_inputs(tokens: int, width: int, vocab: int) -> Inputs:
    inputs = make_inputs(tokens, width, vocab, HALF)
    return Inputs(*(getattr(inputs, name).to(DEVICE) for name in Inputs.__dataclass_fields__))


@pytest.mark.parametrize(
    ("keep_bytes", "used"),
    [
        (0, ("logprobs",)),
        (ALL, ("logprobs",)),
        (SOME, ("entropy",)),
        (0, ("token_logprobs", "topk_logits")),
        (SOME, ("token_logprobs", "topk_logits")),
        (ALL, ("sum_pi_squared",)),
    ],
)
def test_each_alone(keep_bytes: int, used: tuple[str, ...]) -> None:
    check_statistics(HALF, DEVICE, SHAPE, used=used, topk=3, ids=4, keep_bytes=keep_bytes)


@pytest.mark.parametrize("keep_bytes", [0, SOME, ALL])
def test_everything_at_once(keep_bytes: int) -> None:
    temperature, mask = torch.rand(140, device=DEVICE) + 0.5, torch.arange(140, device=DEVICE) % 3
    asked = {"topk": 3, "ids": 4, "keep_bytes": keep_bytes}
    check_statistics(HALF, DEVICE, SHAPE, **asked, temperature=temperature, mask=mask, vocab_size=450)
    check_statistics(HALF, DEVICE, SHAPE, **asked, tile_bytes=95_000)
    check_statistics(HALF, DEVICE, SHAPE, **asked, batch_invariant=True)


@pytest.mark.parametrize("shape", [(1, 8, 1), (3, 8, 7), (129, 72, 257), (128, 64, 256), (130, 16, 600)])
def test_odd_shapes(shape: tuple[int, int, int]) -> None:
    for keep_bytes in (0, ALL):
        check_statistics(HALF, DEVICE, shape, topk=3, ids=3, keep_bytes=keep_bytes)


def test_many_of_the_largest_and_many_ids() -> None:
    check_statistics(HALF, DEVICE, (3, 8, 300), topk=64, ids=70)


@pytest.mark.parametrize("spread", [4.0, 15.0])
def test_sharp_distributions(spread: float) -> None:
    for keep_bytes in (0, ALL):  # logits that large have fewer digits behind the point
        check_statistics(HALF, DEVICE, SHAPE, spread=spread, keep_bytes=keep_bytes)


@pytest.mark.parametrize("keep_bytes", [0, ALL])
def test_a_sure_model(keep_bytes: int) -> None:
    """Where `1 - p` of one token is about 1e-4: as the label it has the gradient of the log-prob that was given."""
    hidden, weight = torch.zeros(1, 8, dtype=HALF, device=DEVICE), torch.zeros(600, 8, dtype=HALF, device=DEVICE)
    hidden[0, 0], weight[:, 0] = 1, torch.linspace(-1, 1, 600)
    weight[77, 0] = 16
    weight.requires_grad_()
    for label in (77, 5):
        out = linear_logprob(hidden, weight, torch.tensor([label], device=DEVICE), entropy=True, keep_bytes=keep_bytes)
        logprob, entropy = out
        assert entropy is not None
        if label == 77:
            (own,) = torch.autograd.grad(logprob.sum(), weight)
            truth = -torch.expm1(logprob.detach())[0]
        else:
            (own,) = torch.autograd.grad(entropy.sum(), weight)
            log_p = (hidden.double() @ weight.detach().double().t()).log_softmax(-1)
            truth = (-log_p.exp() * (log_p - (log_p.exp() * log_p).sum()))[0, 77]
        assert 1e-5 < abs(float(truth)) < 1e-2
        assert_close(own[77, 0], truth, HALF, sums=600)


@pytest.mark.parametrize("p", [0.5, 0.99999])
def test_kept_logits_keep_the_tail_of_sure_rows(p: float) -> None:
    check_kept_is_no_worse(p, HALF, DEVICE, vocab=2048)  # test_cuda.py has 151,936


def test_a_second_backward_makes_again_what_the_first_used_up() -> None:
    inputs = half_inputs(140, 16, 700)
    hidden, weight = inputs.hidden.clone().requires_grad_(), inputs.weight.clone().requires_grad_()
    loss = linear_logprob(hidden, weight, inputs.labels, keep_bytes=ALL)[0].sum()
    first = torch.autograd.grad(loss, [hidden, weight], retain_graph=True)
    second = torch.autograd.grad(loss, [hidden, weight], retain_graph=True)
    third = torch.autograd.grad(loss, [hidden, weight])
    plain = torch.autograd.grad(linear_logprob(hidden, weight, inputs.labels)[0].sum(), [hidden, weight])
    assert all(torch.equal(a, b) for a, b in zip(second, plain, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(third, plain, strict=True))
    for mine, other in zip(first, plain, strict=True):
        assert_close(mine, other, HALF)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_holds_nothing_until_its_backward(reentrant: bool) -> None:
    inputs = half_inputs(140, 16, 700)
    rooms: list[Any] = []

    def room(*arguments: Any) -> Any:
        rooms.append(keep_room(*arguments))
        return rooms[-1]

    keep_room = grad_kernel.room_to_keep

    def call(hidden: Tensor, weight: Tensor) -> Tensor:
        return linear_logprob(hidden * 1, weight, inputs.labels, keep_bytes=ALL)[0]

    hidden, weight = inputs.hidden.clone().requires_grad_(), inputs.weight.clone().requires_grad_()
    straight = torch.autograd.grad(call(hidden, weight).sum(), [hidden, weight])
    with mock.patch("mcore_unpatch.compat.fused_head.triton.backend.room_to_keep", room):
        checkpoint(call, hidden, weight, use_reentrant=reentrant).sum().backward()
    assert len(rooms) == 2
    assert (rooms[0] is None) == reentrant  # a forward without a graph keeps nothing
    assert torch.equal(grad_of(hidden), straight[0])
    assert torch.equal(grad_of(weight), straight[1])


def test_bytes_that_are_not_free_are_an_error() -> None:
    """Kept or not as memory allows, a checkpoint's second forward might save other tensors than its first."""
    inputs, make = half_inputs(5, 16, 300), Tensor.new_empty

    def scarce(self: Tensor, *shape: Any, **given: Any) -> Tensor:
        if given.get("dtype") is torch.int16:
            raise torch.OutOfMemoryError
        return make(self, *shape, **given)

    with mock.patch.object(Tensor, "new_empty", scarce), pytest.raises(torch.OutOfMemoryError):
        linear_logprob(inputs.hidden.requires_grad_(), inputs.weight, inputs.labels, keep_bytes=ALL)


def test_no_grad_keeps_nothing() -> None:
    inputs = half_inputs(5, 16, 300)
    with mock.patch(
        "mcore_unpatch.compat.fused_head.triton.backend.room_to_keep", wraps=grad_kernel.room_to_keep
    ) as room:
        linear_logprob(inputs.hidden, inputs.weight, inputs.labels, keep_bytes=ALL)
        assert room.call_args.args[0].keep_bytes == 0
        linear_logprob(inputs.hidden.requires_grad_(), inputs.weight, inputs.labels, keep_bytes=ALL)
        assert room.call_args.args[0].keep_bytes == ALL


def test_keep_bytes_is_a_bound() -> None:
    for rows in (1, 7, 300):
        for columns in (1, 255, 256, 257, 5000):
            for budget in (0, 100, 10_000, 1_000_000, ALL):
                count = grad_kernel.columns_that_fit(rows, columns, 256, budget)
                used = rows * (2 * grad_kernel.padded(count) + 4 * -(-count // 256))
                assert count <= columns
                assert count == 0 or used <= budget
                assert count == columns or count % 256 == 0
                assert (
                    count == columns
                    or rows * (2 * (count + 256) + 4 * (count // 256 + 1)) > budget
                    or (count + 256 >= columns)
                )


@pytest.mark.parametrize(("buffer", "tile_bytes"), [(torch.float32, None), (HALF, 82_000)])
def test_kept_columns_and_main_grad(buffer: torch.dtype, tile_bytes: int | None) -> None:
    inputs = half_inputs(140, 16, 700)
    gradients = []
    for keep_bytes in (0, 140 * 600, ALL):
        weight: Any = torch.nn.Parameter(inputs.weight.clone())
        weight.main_grad = torch.ones(700, 16, dtype=buffer, device=DEVICE)
        linear_logprob(
            inputs.hidden, weight, inputs.labels, fuse_main_grad=True, tile_bytes=tile_bytes, keep_bytes=keep_bytes
        )[0].sum().backward()
        gradients.append(weight.main_grad - 1)
    for gradient in gradients[1:]:
        assert_close(gradient, gradients[0], HALF)


def test_a_row_has_the_same_bits_in_any_company() -> None:
    inputs = half_inputs(300, 8, 1100)
    whole = vocab_pass(inputs.hidden, inputs.weight, inputs.labels, entropy=True, batch_invariant=True)
    for rows in ([0], [299], list(range(130)), list(range(299, 100, -3))):
        few = vocab_pass(inputs.hidden[rows], inputs.weight, inputs.labels[rows], entropy=True, batch_invariant=True)
        for name in ("logprobs", "entropy", "logsumexp"):
            assert torch.equal(getattr(few, name), getattr(whole, name)[rows]), name


def test_broken_and_endless_logits_in_top_k() -> None:
    inputs = half_inputs(5, 16, 300)
    inputs.hidden[2, 3] = torch.nan
    out = vocab_pass(inputs.hidden, inputs.weight, topk=4)
    assert out.topk_logits is not None
    assert out.topk_logits.isnan().any(1).tolist() == [False, False, True, False, False]


def test_equal_logits_are_all_listed() -> None:
    hidden, weight = torch.ones(3, 8, dtype=HALF, device=DEVICE), torch.ones(600, 8, dtype=HALF, device=DEVICE)
    out = vocab_pass(hidden, weight, topk=20)
    assert out.topk_ids is not None
    assert all(len(set(row)) == 20 for row in out.topk_ids.tolist())


def on_shards(pointers: bool, keep_bytes: int, vocab_size: int | None) -> None:
    with mock.patch.object(launch, "has_tma", return_value=not pointers):
        check_statistics(
            HALF,
            DEVICE,
            share=(dist.get_rank(), dist.get_world_size()),
            tp_group=dist.group.WORLD,
            keep_bytes=keep_bytes,
            vocab_size=vocab_size,
        )


@pytest.mark.skipif(DEVICE != "cpu", reason="one GPU is one rank")
def test_two_ranks() -> None:
    for keep_bytes, vocab_size in ((0, None), (ALL, 300)):
        run_on_ranks("0.19.2", 2, on_shards, not launch.has_tma(torch.device(DEVICE)), keep_bytes, vocab_size)
