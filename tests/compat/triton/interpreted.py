"""The triton kernels on the CPU, by Triton's interpreter, against float64. `test_interpreted.py` runs this file.

float16 only: the interpreter cannot multiply bfloat16, and a wider weight is the torch backend's. The interpreter takes
as long for a small block of logits as for a large one: two blocks of rows by two or three of columns show every border.
"""

from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from fused_head.all_statistics import check_statistics
from fused_head.backend_checks import check_rows_are_gathered_one_tile_at_a_time, check_the_hidden_gradient_comes_early
from fused_head.confident_rows import TEMPERATURES, check_kept_is_no_worse, check_same_logits
from fused_head.oracle import (
    Results,
    assert_as_exact_as_materialised,
    grad_of,
    linear_logprob,
    make_inputs,
    materialised,
    results,
)
from harness import run_on_ranks
from harness.rounding import assert_close
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mcore_unpatch.compat import vocab_pass
from mcore_unpatch.compat.fused_head.torch_backend import TorchBackend, chunk_tile_bytes
from mcore_unpatch.compat.fused_head.triton import backend as triton_backend, grad_kernel, launch
from mcore_unpatch.compat.fused_head.triton.backend import TritonBackend

HALF, CPU = torch.float16, torch.device("cpu")
SHAPE, LOW = (140, 16, 500), (40, 16, 500)  # two blocks of rows, and one
NONE, SOME, ALL = 0, 140 * 600, 1 << 30  # of the columns kept: none, one block of them, all


@pytest.fixture(autouse=True)
def _no_way_round() -> Any:
    """Whoever lands in the torch backend has not tested a kernel."""
    with mock.patch.object(TorchBackend, "forward", side_effect=AssertionError("torch backend")):
        yield


def compare(found: Results, truth: Results) -> None:
    for name in truth:
        assert_close(found[name], truth[name], HALF if name.endswith(".grad") else torch.float32)


def check(shape: tuple[int, int, int], ours: dict[str, Any] | None = None, **shared: Any) -> None:
    inputs = make_inputs(*shape, HALF)
    truth = results(materialised, inputs.in_float64(), **shared)
    compare(results(linear_logprob, inputs, **shared, **(ours or {})), truth)


@pytest.mark.parametrize(
    ("keep_bytes", "used"), [(ALL, "logprobs"), (SOME, "entropy"), (NONE, "topk_logits"), (ALL, "sum_pi_squared")]
)
def test_each_alone(keep_bytes: int, used: str) -> None:
    check_statistics(HALF, "cpu", LOW, used=(used,), topk=3, ids=4, keep_bytes=keep_bytes)


@pytest.mark.parametrize(("tma", "keep_bytes"), [(True, ALL), (False, NONE)], ids=["tma", "pointers"])
@pytest.mark.parametrize("shape", [(1, 8, 1), (3, 8, 7), (129, 72, 257), (128, 64, 256)], ids=str)
def test_odd_shapes(shape: tuple[int, int, int], tma: bool, keep_bytes: int) -> None:
    with mock.patch.object(launch, "has_tma", return_value=tma):
        check_statistics(HALF, "cpu", shape, topk=3, ids=3, keep_bytes=keep_bytes)


def test_everything_at_once() -> None:
    temperature, mask = torch.rand(140) + 0.5, torch.arange(140) % 3
    check_statistics(HALF, "cpu", SHAPE, topk=3, ids=4, keep_bytes=SOME, temperature=temperature, mask=mask)
    check_statistics(HALF, "cpu", (40, 16, 500), topk=3, ids=4, vocab_size=450, tile_bytes=95_000)


def test_many_of_the_largest_and_many_ids() -> None:
    check_statistics(HALF, "cpu", (3, 8, 300), topk=64, ids=70)


def test_sharp_distributions() -> None:
    check_statistics(HALF, "cpu", LOW, spread=15.0, keep_bytes=ALL)


def test_more_sums_than_are_merged_at_once_and_a_maximum_that_comes_late() -> None:
    inputs = make_inputs(5, 8, 9001, HALF)
    inputs.hidden.abs_()
    inputs.weight[-1] = 2
    with mock.patch.object(launch, "multiprocessors", return_value=132), mock.patch.object(launch, "_SEGMENT", 1):
        assert launch.splits_for(5, 9001, CPU) == (1, 36, 1)
        found = linear_logprob(inputs.hidden, inputs.weight, inputs.labels)[0]
    compare({"logprobs": found}, {"logprobs": results(materialised, inputs.in_float64())["logprobs"]})


def test_a_program_forgets_the_rows_before() -> None:
    """Broken or huge logits in the first block of rows do not reach the one that the same program takes next."""
    inputs = make_inputs(200, 8, 300, HALF)
    truth = results(materialised, inputs.in_float64())
    inputs.hidden[:100], inputs.hidden[100:128] = torch.nan, 60_000.0
    with mock.patch.object(launch, "multiprocessors", return_value=1):
        logprobs, entropy = linear_logprob(inputs.hidden, inputs.weight, inputs.labels, entropy=True)
    assert entropy is not None
    compare(
        {"logprobs": logprobs[128:], "entropy": entropy[128:]}, {k: truth[k][128:] for k in ("logprobs", "entropy")}
    )
    assert logprobs[:100].isnan().all()


def test_a_row_has_the_same_bits_in_any_company() -> None:
    inputs = make_inputs(140, 8, 1100, HALF)
    whole = vocab_pass(inputs.hidden, inputs.weight, inputs.labels, entropy=True)
    for rows in ([0], [139], list(range(139, 10, -3))):
        few = vocab_pass(inputs.hidden[rows], inputs.weight, inputs.labels[rows], entropy=True)
        for name in ("logprobs", "entropy", "logsumexp"):
            assert torch.equal(getattr(few, name), getattr(whole, name)[rows]), name


def test_tiles_of_rows_and_columns() -> None:
    check((200, 16, 600), {"tile_bytes": 90_000})
    check((140, 24, 300), {"tile_bytes": chunk_tile_bytes(1, 1, torch.empty(300, 24, dtype=HALF))})
    with pytest.raises(ValueError, match="tile_bytes: expected at least 81920 for these tensors and this backend"):
        check((300, 16, 1030), {"tile_bytes": 1000})


def test_several_launches_forward() -> None:
    launches = mock.patch.object(triton_backend, "split_stats", wraps=triton_backend.split_stats)
    with mock.patch.object(launch, "_MOST_ROWS", 128), launches as seen:
        check((300, 16, 300), temperature=torch.rand(300) + 0.5)
    assert seen.call_count == 3


def test_one_copy_of_the_rows_at_a_time() -> None:
    with mock.patch.object(launch, "_MOST_ROWS", 128):
        check_rows_are_gathered_one_tile_at_a_time(make_inputs(300, 16, 300, HALF), 90_000)


def test_the_hidden_gradient_comes_early() -> None:
    check_the_hidden_gradient_comes_early(TritonBackend(), HALF, 400_000)


def test_scales_and_another_dtype() -> None:
    check((140, 24, 300), temperature=0.4, logit_scale=-1.5, vocab_size=270)
    inputs = make_inputs(40, 16, 300, HALF, hidden_dtype=torch.float32)
    compare(results(linear_logprob, inputs), results(materialised, inputs.in_float64()))
    wide = torch.zeros(40, 33, dtype=HALF)  # hidden states that lie scattered
    wide[:, 17:] = inputs.hidden.half()
    assert_close(
        linear_logprob(wide[:, 17:], inputs.weight, inputs.labels)[0],
        linear_logprob(wide[:, 17:].clone(), inputs.weight, inputs.labels)[0],
    )


def test_large_logits_keep_their_digits() -> None:
    inputs = make_inputs(40, 32, 300, HALF)
    inputs.hidden.mul_(20)
    assert_as_exact_as_materialised(inputs)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_forward_and_backward_see_the_same_logits(temperature: float) -> None:
    check_same_logits(HALF, "cpu", temperature)


def test_labels_that_are_no_tokens() -> None:
    inputs = make_inputs(6, 16, 300, HALF)
    inputs.labels.copy_(torch.tensor([3, -100, -1, 300, 10**12, 299]))
    hidden = inputs.hidden.clone().requires_grad_()
    linear_logprob(hidden, inputs.weight, inputs.labels, out_of_vocab_grad="legacy")[0].sum().backward()
    p = (inputs.hidden.double() @ inputs.weight.double().t()).softmax(-1)
    assert_close(grad_of(hidden)[2:5], -(p @ inputs.weight.double())[2:5], HALF)
    assert not grad_of(hidden)[1].any()


@pytest.mark.parametrize("wanted", ["hidden", "weight"])
def test_only_one_gradient(wanted: str) -> None:
    inputs = make_inputs(20, 16, 300, HALF)
    both = results(linear_logprob, inputs)
    tensors = {"hidden": inputs.hidden.clone(), "weight": inputs.weight.clone()}
    tensors[wanted].requires_grad_()
    logprobs, entropy = linear_logprob(tensors["hidden"], tensors["weight"], inputs.labels, entropy=True)
    assert entropy is not None
    ((logprobs * inputs.logprob_grad).sum() + (entropy * inputs.entropy_grad).sum()).backward()
    assert torch.equal(grad_of(tensors[wanted]), both[f"{wanted}.grad"])


@pytest.mark.parametrize(("buffer", "tile_bytes", "keep"), [(torch.float32, 90_000, NONE), (HALF, 82_000, SOME)])
def test_main_grad(buffer: torch.dtype, tile_bytes: int | None, keep: int) -> None:
    inputs = make_inputs(140, 16, 500, HALF)
    weight: Any = torch.nn.Parameter(inputs.weight.clone())
    weight.main_grad = torch.ones(500, 16, dtype=buffer)
    how: dict[str, Any] = {"vocab_size": 450, "tile_bytes": tile_bytes, "keep_bytes": keep, "fuse_main_grad": True}
    (linear_logprob(inputs.hidden, weight, inputs.labels, **how)[0] * inputs.logprob_grad).sum().backward()
    exact = inputs.in_float64()
    truth = exact.weight.requires_grad_()
    (materialised(exact.hidden, truth, inputs.labels, vocab_size=450)[0] * inputs.logprob_grad).sum().backward()
    assert torch.equal(weight.main_grad[450:], torch.ones(50, 16, dtype=buffer))
    assert_close(weight.main_grad, 1 + grad_of(truth), HALF)


def test_broken_and_equal_logits() -> None:
    inputs = make_inputs(5, 16, 300, HALF)
    inputs.hidden[2, 3] = torch.nan
    out = vocab_pass(inputs.hidden, inputs.weight, inputs.labels, entropy=True, topk=4)
    for found in (out.logprobs, out.entropy, None if out.topk_logits is None else out.topk_logits[:, 0]):
        assert found is not None
        assert found.isnan().tolist() == [False, False, True, False, False]
    ones = vocab_pass(torch.ones(3, 8, dtype=HALF), torch.ones(300, 8, dtype=HALF), topk=20)
    assert ones.topk_ids is not None
    assert all(len(set(row)) == 20 for row in ones.topk_ids.tolist())


def test_kept_logits_keep_the_tail_of_sure_rows() -> None:
    check_kept_is_no_worse(0.99999, HALF, "cpu", vocab=1024)  # test_cuda.py has 151,936


def test_a_second_backward_makes_again_what_the_first_used_up() -> None:
    inputs = make_inputs(*LOW, HALF)
    tensors = inputs.hidden.clone().requires_grad_(), inputs.weight.clone().requires_grad_()
    loss = linear_logprob(*tensors, inputs.labels, keep_bytes=ALL)[0].sum()
    first, second = (torch.autograd.grad(loss, tensors, retain_graph=True) for _ in range(2))
    plain = torch.autograd.grad(linear_logprob(*tensors, inputs.labels)[0].sum(), tensors)
    assert all(torch.equal(a, b) for a, b in zip(second, plain, strict=True))
    for mine, other in zip(first, plain, strict=True):
        assert_close(mine, other, HALF)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_holds_nothing_until_its_backward(reentrant: bool) -> None:
    inputs, rooms = make_inputs(*LOW, HALF), []
    keep_room = grad_kernel.room_to_keep

    def room(*arguments: Any) -> Any:
        rooms.append(keep_room(*arguments))
        return rooms[-1]

    def call(hidden: Tensor, weight: Tensor) -> Tensor:
        return linear_logprob(hidden * 1, weight, inputs.labels, keep_bytes=ALL)[0]

    hidden, weight = inputs.hidden.clone().requires_grad_(), inputs.weight.clone().requires_grad_()
    straight = torch.autograd.grad(call(hidden, weight).sum(), [hidden, weight])
    with mock.patch("mcore_unpatch.compat.fused_head.triton.grad_kernel.room_to_keep", room):
        checkpoint(call, hidden, weight, use_reentrant=reentrant).sum().backward()
    assert [kept is None for kept in rooms] == [reentrant, False]  # a forward without a graph keeps nothing
    assert torch.equal(grad_of(hidden), straight[0])
    assert torch.equal(grad_of(weight), straight[1])


def on_shards() -> None:
    """The second shard has ten tokens, and else padding."""
    how: dict[str, Any] = {"share": (dist.get_rank(), 2), "tp_group": dist.group.WORLD}
    with mock.patch.object(TorchBackend, "forward", side_effect=AssertionError("torch backend")):
        check_statistics(HALF, "cpu", (30, 16, 600), keep_bytes=ALL, vocab_size=310, **how)


def test_two_ranks() -> None:
    run_on_ranks("0.19.2", 2, on_shards)


def test_what_the_kernels_cannot_take_goes_to_torch() -> None:
    inputs = make_inputs(4, 16, 300, HALF)
    for call in (
        lambda: vocab_pass(inputs.hidden, inputs.weight, topk=65),
        lambda: linear_logprob(inputs.hidden.float(), inputs.weight.float(), inputs.labels),
        lambda: linear_logprob(inputs.hidden.bfloat16(), inputs.weight.bfloat16(), inputs.labels),
        lambda: linear_logprob(inputs.hidden[:, :9], inputs.weight[:, :9].contiguous(), inputs.labels),
    ):
        with pytest.raises(AssertionError, match="torch backend"):
            call()
