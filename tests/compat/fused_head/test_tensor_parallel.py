"""Shards on real gloo ranks: every rank gets the whole truth, and its own part of the weight's gradient."""

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from fused_head.all_statistics import check_statistics
from fused_head.counters import CollectiveCounter, OrderOfWork
from fused_head.oracle import Inputs, Results, assert_exact, grad_of, linear_logprob, make_inputs, materialised, results
from harness import on_ranks, run_on_ranks
from harness.rounding import assert_agree, assert_close
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mcore_unpatch.compat import vocab_pass

RELEASE = "0.19.2"  # the operator uses nothing of Megatron; the ranks come with one


def my_part(full: Tensor, sizes: list[int]) -> Tensor:
    parts: tuple[Tensor, ...] = full.split(sizes)
    return parts[dist.get_rank()]


def sharded_results(inputs: Inputs, sizes: list[int], **options: Any) -> Results:
    mine = Inputs(
        inputs.hidden, my_part(inputs.weight, sizes), *(inputs.labels, inputs.logprob_grad, inputs.entropy_grad)
    )
    return results(linear_logprob, mine, tp_group=dist.group.WORLD, **options)


def compare_with_float64(
    sizes: list[int],
    tokens: int | tuple[int, ...],
    width: int,
    dtype: torch.dtype,
    shared: dict[str, Any],
    device_only: bool = False,
    **options: Any,
) -> None:
    """Runs on each rank; `device_only` takes the path of a GPU, where no number is read back to the host."""
    inputs = make_inputs(tokens, width, sum(sizes), dtype)
    truth = dict(results(materialised, inputs.in_float64(), **shared))
    truth["weight.grad"] = my_part(truth["weight.grad"], sizes)
    with mock.patch("mcore_unpatch.compat.fused_head.plan.waiting_is_free", return_value=not device_only):
        found = sharded_results(inputs, sizes, **shared, **options)
    plain = None
    if dtype == torch.float32:  # in 16 bits the materialised path rounds its logits, and would allow too much
        plain = dict(results(materialised, inputs, **shared))
        plain["weight.grad"] = my_part(plain["weight.grad"], sizes)
    assert_exact(found, truth, inputs, plain)


def run_comparison(*args: Any) -> None:
    *head, options = args
    compare_with_float64(*head, **options)


SHARDS = [[50, 50], [25, 25, 25, 25]]


@pytest.mark.parametrize("sizes", SHARDS, ids=str)
@pytest.mark.parametrize("device_only", [False, True])
@pytest.mark.parametrize("vocab_size", [None, 61])
def test_whole_and_padded_shards(sizes: list[int], device_only: bool, vocab_size: int | None) -> None:
    shared = {"vocab_size": vocab_size, "temperature": 0.7}
    options = {"device_only": device_only, "tile_bytes": 9_000}
    run_on_ranks(RELEASE, len(sizes), run_comparison, sizes, (5, 7), 16, torch.float32, shared, options)


@pytest.mark.parametrize(
    ("sizes", "tokens", "width"),
    [([1, 1], 3, 33), ([4, 4], 1, 1), ([25129, 25129], 3, 33), ([4, 4], 4097, 1), ([4, 4], 0, 5)],
    ids=str,
)
def test_odd_shapes(sizes: list[int], tokens: int, width: int) -> None:
    run_on_ranks(RELEASE, 2, run_comparison, sizes, tokens, width, torch.float32, {}, {})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision(dtype: torch.dtype) -> None:
    run_on_ranks(RELEASE, 2, run_comparison, [250, 250], 40, 32, dtype, {}, {"tile_bytes": 60_000})


# Shards whose peaks lie farther apart than the exponent of a float32 reaches (e**88).
@pytest.mark.parametrize("offsets", [(0, 256), (256, 0), (-256, 256)], ids=str)
@on_ranks(2, release=RELEASE)
def test_shards_whose_peaks_lie_far_apart(offsets: tuple[int, int]) -> None:
    sizes = [15, 15]
    inputs = make_inputs(9, 8, sum(sizes))
    inputs.hidden[:, 0] = 1
    inputs.weight[:, 0] = torch.tensor(offsets).repeat_interleave(torch.tensor(sizes))
    truth = dict(results(materialised, inputs.in_float64()))
    truth["weight.grad"] = my_part(truth["weight.grad"], sizes)
    assert_agree(sharded_results(inputs, sizes), truth, sums=8, peak=256)


@pytest.mark.parametrize("live", [0, 1, 6])
@pytest.mark.parametrize("device_only", [False, True])
def test_masks_down_to_no_row_at_all(live: int, device_only: bool) -> None:
    shared = {"mask": torch.arange(9) < live}
    options = {"device_only": device_only, "max_rows": live + 1 if device_only else None}
    run_on_ranks(RELEASE, 2, run_comparison, [15, 15], 9, 8, torch.float32, shared, options)


@on_ranks(2, release=RELEASE)
def test_labels_that_are_no_tokens() -> None:
    inputs = make_inputs(6, 8, 30)
    inputs.labels[1], inputs.labels[3], inputs.labels[4] = -100, 30, 1000
    for option in ("zero", "legacy"):
        alone = dict(results(linear_logprob, inputs, out_of_vocab_grad=option))
        alone["weight.grad"] = my_part(alone["weight.grad"], [15, 15])
        assert_agree(sharded_results(inputs, [15, 15], out_of_vocab_grad=option), alone)


def hidden_gradient_unreduced() -> tuple[Tensor, Tensor]:
    inputs = make_inputs(6, 8, 30)
    part = sharded_results(inputs, [15, 15], reduce_hidden_grad=False)["hidden.grad"]
    return part, results(materialised, inputs.in_float64())["hidden.grad"]


def test_the_callers_own_reduction_of_the_hidden_gradient() -> None:
    parts, truths = zip(*run_on_ranks(RELEASE, 2, hidden_gradient_unreduced), strict=True)
    assert_close(parts[0] + parts[1], truths[0])
    assert (parts[0] - truths[0]).norm() > 0.1


def count_collectives(tile_bytes: int, **options: Any) -> tuple[list[str], list[str]]:
    inputs = make_inputs(20, 8, 150)
    hidden, weight = inputs.hidden.requires_grad_(), my_part(inputs.weight, [75, 75]).requires_grad_()
    with CollectiveCounter() as forward:
        out = vocab_pass(
            hidden, weight, inputs.labels, tp_group=dist.group.WORLD, entropy=True, tile_bytes=tile_bytes, **options
        )
    assert out.logprobs is not None
    assert out.entropy is not None
    with CollectiveCounter() as backward:
        (out.logprobs.sum() + out.entropy.sum()).backward()
    return forward.names, backward.names


@pytest.mark.parametrize("options", [{}, {"mask": torch.arange(20) % 2}, {"topk": 3}], ids=["plain", "mask", "topk"])
@on_ranks(2, release=RELEASE)
def test_a_constant_number_of_collectives(options: dict[str, Any]) -> None:
    forward = ["_allgather_base_"] * (2 if "topk" in options else 1)
    for tile_bytes in (1_000, 10_000, 10_000_000):
        assert count_collectives(tile_bytes, **options) == (forward, ["allreduce_"]), tile_bytes


def order_of_the_backward() -> list[str]:
    """Runs on each rank."""
    inputs = make_inputs(40, 8, 300)
    hidden, weight = inputs.hidden.requires_grad_(), my_part(inputs.weight, [150, 150]).requires_grad_()
    logprobs, _ = linear_logprob(hidden, weight, inputs.labels, tp_group=dist.group.WORLD)
    with OrderOfWork() as order:
        logprobs.sum().backward()
    return order.names


def test_the_hidden_gradient_is_summed_beside_the_last_product_of_the_weights_gradient() -> None:
    for order in run_on_ranks(RELEASE, 2, order_of_the_backward):
        assert order == ["product", "product", "allreduce_", "product"]


@pytest.mark.parametrize("device_only", [False, True])
@pytest.mark.parametrize("sizes", [[16, 16], [26, 26]], ids=str)
@on_ranks(2, release=RELEASE)
def test_top_k_over_all_shards(sizes: list[int], device_only: bool) -> None:
    inputs = make_inputs(12, 8, sum(sizes))
    logits = inputs.hidden.double() @ inputs.weight.double()[:28].t()
    hidden = inputs.hidden.requires_grad_()
    with mock.patch("mcore_unpatch.compat.fused_head.plan.waiting_is_free", return_value=not device_only):
        out = vocab_pass(
            hidden, my_part(inputs.weight, sizes), topk=7, vocab_size=28, tp_group=dist.group.WORLD, tile_bytes=5_000
        )
    assert out.topk_logits is not None
    assert out.topk_ids is not None
    assert torch.equal(out.topk_ids, logits.topk(7).indices)
    assert_close(out.topk_logits, logits.topk(7).values)
    factor = torch.randn(12, 7, generator=torch.Generator().manual_seed(4))
    (out.topk_logits * factor).sum().backward()
    truth = torch.einsum("nk,nkh->nh", factor.double(), inputs.weight.double()[logits.topk(7).indices])
    assert_close(grad_of(hidden), truth)


@on_ranks(4, release=RELEASE)
def test_two_groups_of_two() -> None:
    """Ranks 0, 1 and 2, 3 are tensor-parallel pairs with different data."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    pair, place = divmod(dist.get_rank(), 2)
    inputs = make_inputs(5, 8, 30, seed=pair)
    mine = replace(inputs, weight=inputs.weight.split([15, 15])[place])
    truth = dict(results(materialised, inputs.in_float64()))
    truth["weight.grad"] = truth["weight.grad"].split([15, 15])[place]
    assert_exact(results(linear_logprob, mine, tp_group=groups[pair]), truth, inputs)
    stranger = groups[1 - pair]
    with pytest.raises(TypeError, match="tp_group: expected a process group this rank belongs to"):
        results(linear_logprob, mine, tp_group=stranger)


@on_ranks(2, release=RELEASE)
def test_recompute_under_tensor_parallelism() -> None:
    inputs = make_inputs(5, 8, 30)

    def recomputed(hidden: Tensor, weight: Tensor, labels: Tensor, **options: Any) -> Any:
        return checkpoint(lambda h: linear_logprob(h, weight, labels, **options), hidden, use_reentrant=False)

    mine = replace(inputs, weight=my_part(inputs.weight, [15, 15]))
    straight = results(linear_logprob, mine, tp_group=dist.group.WORLD)
    again = results(recomputed, mine, tp_group=dist.group.WORLD)
    assert all(torch.equal(straight[name], again[name]) for name in straight)


def ranks_that_disagree(what: str, on_device: bool = False) -> str:
    """Only a debug level makes a call ask the others."""
    rank = dist.get_rank()
    inputs = make_inputs(5, 8, 30)
    hidden, weight, labels = inputs.hidden, my_part(inputs.weight, [15, 15]), inputs.labels
    options: dict[str, Any] = {"max_rows": 4} if on_device else {}
    if what == "tokens":
        hidden, labels = hidden[: 5 - rank], labels[: 5 - rank]
    elif what == "mask":
        options["mask"] = torch.arange(5) < 2 * rank
    elif what == "labels":
        labels = labels.masked_fill(torch.arange(5) < 2 * rank, -100)
    elif what == "bound":
        options["max_rows"] = 4 if rank else 5
    elif what == "width":
        hidden, weight = hidden[:, : 8 - rank], weight[:, : 8 - rank]
    elif what == "shards":
        weight = weight[: 15 - rank]
    else:
        options["vocab_size"] = 31
    level = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        with (
            mock.patch("mcore_unpatch.compat.fused_head.plan.waiting_is_free", return_value=not on_device),
            pytest.raises(ValueError) as caught,
        ):
            linear_logprob(hidden, weight, labels, tp_group=dist.group.WORLD, **options)
    finally:
        dist.set_debug_level(level)
    return str(caught.value)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("tokens", "hidden: expected the same number of tokens on every rank of tp_group, got [5, 4]"),
        ("mask", "mask or labels: expected the same number of rows to compute on every rank of tp_group, got [0, 2]"),
        ("labels", "mask or labels: expected the same number of rows to compute on every rank of tp_group, got [5, 3]"),
        ("bound", "max_rows: expected the same bound (-1: none) on every rank of tp_group, got [5, 4]"),
        ("width", "weight: expected the same hidden size on every rank of tp_group, got [8, 7]"),
        ("shards", "weight: expected the same number of rows on every rank of tp_group, got [15, 14]"),
        ("words", "vocab_size: expected at most 30, the number of weight rows on all ranks of tp_group, got 31"),
    ],
)
def test_ranks_that_disagree_are_told_and_not_left_waiting(what: str, message: str) -> None:
    assert run_on_ranks(RELEASE, 2, ranks_that_disagree, what) == [message] * 2
    if what != "bound":
        assert run_on_ranks(RELEASE, 2, ranks_that_disagree, what, True) == [message] * 2


@on_ranks(2, release=RELEASE)
def test_rows_without_a_label_are_left_out_on_every_rank() -> None:
    inputs = make_inputs(20, 8, 30)
    inputs.labels[torch.arange(20) % 10 > 0] = -100
    mine = replace(inputs, weight=my_part(inputs.weight, [15, 15]))
    masked = results(linear_logprob, mine, tp_group=dist.group.WORLD, mask=inputs.labels != -100, ignore_index=None)
    for device_only, bound in ((False, None), (True, None), (True, 2)):
        with mock.patch("mcore_unpatch.compat.fused_head.plan.waiting_is_free", return_value=not device_only):
            found = results(linear_logprob, mine, tp_group=dist.group.WORLD, max_rows=bound)
        assert all(torch.equal(found[name], masked[name]) for name in masked), (device_only, bound)


@pytest.mark.parametrize("device_only", [False, True])
@on_ranks(2, release=RELEASE)
def test_unequal_shards_are_never_silent(device_only: bool) -> None:
    """They are found out with the results: an error, or NaN where that would mean waiting."""
    inputs = make_inputs(5, 8, 30)
    call = (inputs.hidden, my_part(inputs.weight, [16, 14]), inputs.labels)
    if not device_only:
        with pytest.raises(ValueError, match=r"same number of rows on every rank of tp_group, got \[16, 14\]"):
            linear_logprob(*call, tp_group=dist.group.WORLD)
        return
    with mock.patch("mcore_unpatch.compat.fused_head.problem.waiting_is_free", return_value=False):
        logprobs, entropy = linear_logprob(*call, entropy=True, tp_group=dist.group.WORLD)
    assert entropy is not None
    assert logprobs.isnan().all()
    assert entropy.isnan().all()


@pytest.mark.parametrize("vocab_size", [None, 90])
@on_ranks(2, release=RELEASE)
def test_every_statistic(vocab_size: int | None) -> None:
    share = (dist.get_rank(), 2)
    for dtype in (torch.float32, torch.bfloat16):
        check_statistics(dtype, "cpu", (30, 16, 100), share=share, tp_group=dist.group.WORLD, vocab_size=vocab_size)
