"""The triton kernels on the CPU, by Triton's interpreter, against float64. `test_interpreted.py` runs this file.

float16 only: the interpreter cannot multiply bfloat16, and a wider weight is the torch backend's.
"""

from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from fused_head.backend_checks import check_rows_are_gathered_one_tile_at_a_time, check_the_hidden_gradient_comes_early
from fused_head.oracle import (
    Inputs,
    Results,
    assert_as_exact_as_materialised,
    grad_of,
    linear_logprob,
    make_inputs,
    materialised,
    results,
)
from fused_head.same_logits import TEMPERATURES, check_same_logits
from harness import run_on_ranks
from harness.rounding import assert_close
from torch import Tensor

from mcore_unpatch.compat import vocab_pass
from mcore_unpatch.compat.fused_head.problem import chunk_tile_bytes
from mcore_unpatch.compat.fused_head.torch_backend import TorchBackend, choose_backend
from mcore_unpatch.compat.fused_head.triton import backend as triton_backend, launch
from mcore_unpatch.compat.fused_head.triton.backend import TritonBackend

HALF = torch.float16
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _no_way_round() -> Any:
    """Whoever lands in the torch backend has not tested a kernel."""
    with mock.patch.object(TorchBackend, "forward", side_effect=AssertionError("torch backend")):
        yield


def compare(found: Results, truth: Results) -> None:
    for name in truth:
        assert_close(found[name], truth[name], HALF if name.endswith(".grad") else torch.float32)


def check(inputs: Inputs, ours: dict[str, Any] | None = None, **shared: Any) -> None:
    truth = results(materialised, inputs.in_float64(), **shared)
    compare(results(linear_logprob, inputs, **shared, **(ours or {})), truth)


def test_the_kernels_are_what_runs() -> None:
    assert isinstance(choose_backend("auto", CPU), TritonBackend)


@pytest.mark.parametrize(
    ("tokens", "width", "vocab"),
    [
        (1, 8, 1),
        (3, 8, 7),
        (129, 72, 257),
        (128, 64, 256),
        (127, 200, 255),
        (300, 16, 1030),
        (1100, 8, 130),
        (0, 16, 50),
    ],
)
def test_odd_shapes(tokens: int, width: int, vocab: int) -> None:
    check(make_inputs(tokens, width, vocab, HALF))


def test_a_maximum_that_comes_late() -> None:
    """More splits of columns than are merged at once, and the highest logit in the last of them."""
    inputs = make_inputs(5, 8, 9001, HALF)
    inputs.hidden.abs_()
    inputs.weight[-1] = 2
    with mock.patch.object(launch, "multiprocessors", return_value=132):
        assert launch.splits_for(5, 9001, CPU) == (1, 36, 1)
        check(inputs)


@pytest.mark.parametrize("spoilt", [torch.nan, torch.inf, 60_000.0])
def test_a_program_forgets_the_rows_before(spoilt: float) -> None:
    """Broken or huge logits in the first blocks of rows do not reach the blocks that the same programs take next."""
    height, *_ = launch.splits_for(1500, 600, CPU)
    first = 128 * height
    assert first < 1500
    inputs = make_inputs(1500, 8, 600, HALF)
    truth = results(materialised, inputs.in_float64())
    inputs.hidden[:first] = spoilt
    logprobs, entropy = linear_logprob(inputs.hidden, inputs.weight, inputs.labels, entropy=True)
    assert entropy is not None
    found = {"logprobs": logprobs[first:], "entropy": entropy[first:]}
    compare(found, {name: truth[name][first:] for name in found})


def test_tiles_of_rows_and_columns() -> None:
    """Several tiles of rows and columns backward."""
    for tile_bytes in (90_000, 400_000):
        check(make_inputs(300, 16, 1030, HALF), {"tile_bytes": tile_bytes})
    with pytest.raises(ValueError, match="tile_bytes: expected at least 81920 for these tensors and this backend"):
        check(make_inputs(300, 16, 1030, HALF), {"tile_bytes": 1000})


@pytest.mark.parametrize("masked", [False, True])
def test_several_launches_forward(masked: bool) -> None:
    inputs = make_inputs(420, 16, 300, HALF)
    shared = {"temperature": torch.rand(420) + 0.5, "mask": torch.arange(420) % 3 if masked else None}
    with (
        mock.patch.object(launch, "_MOST_ROWS", 128),
        mock.patch.object(triton_backend, "split_stats", wraps=triton_backend.split_stats) as launches,
    ):
        check(inputs, **shared)
    assert launches.call_count == (3 if masked else 4)


def test_one_copy_of_the_rows_at_a_time() -> None:
    with mock.patch.object(launch, "_MOST_ROWS", 128):
        check_rows_are_gathered_one_tile_at_a_time(make_inputs(300, 16, 700, HALF), 90_000)


@pytest.mark.parametrize("tile_bytes", [90_000, 400_000], ids=["tiles of rows and columns", "tiles of columns"])
def test_the_hidden_gradient_comes_early(tile_bytes: int) -> None:
    check_the_hidden_gradient_comes_early(TritonBackend(), HALF, tile_bytes)


def test_the_smallest_chunk_that_a_peer_may_ask_for() -> None:
    inputs = make_inputs(300, 24, 1030, HALF)
    check(inputs, {"tile_bytes": chunk_tile_bytes(1, 1, inputs.weight)})


def test_scales_and_padding_of_the_vocabulary() -> None:
    inputs = make_inputs((3, 60), 24, 600, HALF)
    check(inputs, temperature=torch.rand(3, 60) + 0.5, logit_scale=0.7)
    check(inputs, temperature=0.4, logit_scale=-1.5, vocab_size=300)


def test_large_logits_keep_their_digits() -> None:
    inputs = make_inputs(40, 32, 300, HALF)
    inputs.hidden.mul_(20)
    assert_as_exact_as_materialised(inputs)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_forward_and_backward_see_the_same_logits(temperature: float) -> None:
    check_same_logits(HALF, "cpu", temperature)


@pytest.mark.parametrize("live", [0, 1, 133])
def test_masked_rows(live: int) -> None:
    inputs = make_inputs(200, 16, 300, HALF)
    mask = torch.zeros(200, dtype=torch.int64)
    mask[torch.randperm(200, generator=torch.Generator().manual_seed(1))[:live]] = 1
    check(inputs, mask=mask, temperature=torch.rand(200, generator=torch.Generator().manual_seed(2)) + 0.5)


def test_labels_that_are_no_tokens() -> None:
    inputs = make_inputs(6, 16, 300, HALF)
    inputs.labels.copy_(torch.tensor([3, -100, -1, 300, 10**12, 299]))
    check(inputs)
    hidden = inputs.hidden.clone().requires_grad_()
    linear_logprob(hidden, inputs.weight, inputs.labels, out_of_vocab_grad="legacy")[0].sum().backward()
    p = (inputs.hidden.double() @ inputs.weight.double().t()).softmax(-1)
    assert_close(grad_of(hidden)[2:5], -(p @ inputs.weight.double())[2:5], HALF)
    assert not grad_of(hidden)[1].any()


@pytest.mark.parametrize("output", [0, 1])
def test_one_output_unused(output: int) -> None:
    inputs = make_inputs(20, 16, 300, HALF)
    gradients: list[list[Tensor]] = []
    for call, given in ((linear_logprob, inputs), (materialised, inputs.in_float64())):
        hidden, weight = given.hidden.clone().requires_grad_(), given.weight.clone().requires_grad_()
        used = call(hidden, weight, inputs.labels, entropy=True)[output]
        assert used is not None
        used.sum().backward()
        gradients.append([grad_of(hidden), grad_of(weight)])
    for ours, exact in zip(*gradients, strict=True):
        assert_close(ours, exact, HALF)


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


@pytest.mark.parametrize(("buffer", "tile_bytes"), [(torch.float32, None), (HALF, None), (torch.float32, 90_000)])
def test_main_grad(buffer: torch.dtype, tile_bytes: int | None) -> None:
    inputs = make_inputs(140, 16, 500, HALF)
    weight: Any = torch.nn.Parameter(inputs.weight.clone())
    weight.main_grad = torch.ones(500, 16, dtype=buffer)
    for _ in range(2):
        logprobs, _ = linear_logprob(
            inputs.hidden, weight, inputs.labels, fuse_main_grad=True, vocab_size=450, tile_bytes=tile_bytes
        )
        (logprobs * inputs.logprob_grad).sum().backward()
    exact = inputs.in_float64()
    truth = exact.weight.requires_grad_()
    (materialised(exact.hidden, truth, inputs.labels, vocab_size=450)[0] * inputs.logprob_grad).sum().backward()
    assert torch.equal(weight.main_grad[450:], torch.ones(50, 16, dtype=buffer))
    assert_close(weight.main_grad, 1 + 2 * grad_of(truth), HALF)


def test_a_broken_number_stays_visible() -> None:
    inputs = make_inputs(5, 16, 300, HALF)
    inputs.hidden[2, 3] = torch.nan
    logprobs, entropy = linear_logprob(inputs.hidden, inputs.weight, inputs.labels, entropy=True)
    assert entropy is not None
    assert logprobs.isnan().tolist() == entropy.isnan().tolist() == [False, False, True, False, False]


def test_hidden_states_that_lie_scattered() -> None:
    inputs = make_inputs(40, 16, 300, HALF)
    wide = torch.zeros(40, 33, dtype=HALF)
    wide[:, 17:] = inputs.hidden
    compare(
        {"logprobs": linear_logprob(wide[:, 17:], inputs.weight, inputs.labels)[0]},
        {"logprobs": results(materialised, inputs.in_float64())["logprobs"]},
    )


def test_hidden_states_of_another_dtype() -> None:
    check(make_inputs(40, 16, 300, HALF, hidden_dtype=torch.float32))


def on_shards(sizes: list[int], device_only: bool, vocab_size: int | None) -> None:
    """Runs on each rank, against float64 on the whole vocabulary."""
    inputs = make_inputs(140, 16, sum(sizes), HALF)
    shared = {"vocab_size": vocab_size, "temperature": 0.7}
    truth = dict(results(materialised, inputs.in_float64(), **shared))
    mine: Tensor = inputs.weight.split(sizes)[dist.get_rank()]
    truth["weight.grad"] = truth["weight.grad"].split(sizes)[dist.get_rank()]
    local = Inputs(inputs.hidden, mine, inputs.labels, inputs.logprob_grad, inputs.entropy_grad)
    with (
        mock.patch("mcore_unpatch.compat.fused_head.plan.waiting_is_free", return_value=not device_only),
        mock.patch.object(TorchBackend, "forward", side_effect=AssertionError("torch backend")),
    ):
        compare(results(linear_logprob, local, tp_group=dist.group.WORLD, **shared), truth)


@pytest.mark.parametrize(
    ("sizes", "device_only", "vocab_size"),
    [  # each pair of values once; the interpreter is slow
        ([300, 300], False, 250),
        ([300, 300], True, None),
        ([257, 3], False, None),
        ([257, 3], True, 250),
        ([1, 520], True, None),
        ([300, 0], False, 250),
    ],
    ids=str,
)
def test_two_ranks(sizes: list[int], device_only: bool, vocab_size: int | None) -> None:
    run_on_ranks("0.19.2", 2, on_shards, sizes, device_only, vocab_size)


def test_what_the_kernels_cannot_take_goes_to_torch() -> None:
    inputs = make_inputs(4, 16, 300, HALF)
    for call in (
        lambda: vocab_pass(inputs.hidden, inputs.weight, topk=65),
        lambda: linear_logprob(inputs.hidden.float(), inputs.weight.float(), inputs.labels),
        lambda: linear_logprob(inputs.hidden.bfloat16(), inputs.weight.bfloat16(), inputs.labels),
        lambda: linear_logprob(inputs.hidden[:, :9], inputs.weight[:, :9].contiguous(), inputs.labels),
        lambda: linear_logprob(inputs.hidden[:, :9], inputs.weight[:, :9], inputs.labels),
    ):
        with pytest.raises(AssertionError, match="torch backend"):
            call()
