"""Shards on real gloo ranks: every rank gets the whole truth, and its own part of the weight's gradient."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from fused_head.all_statistics import check_statistics
from fused_head.counters import OrderOfWork
from fused_head.oracle import Inputs, Results, assert_exact, grad_of, linear_logprob, make_inputs, materialised, results
from harness import on_ranks, run_on_ranks
from harness.rounding import assert_agree, assert_close
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mcore_unpatch.compat import linear_kl, vocab_pass

RELEASE = "0.19.2"  # the operator uses nothing of Megatron; the ranks come with one


def my_part(full: Tensor) -> Tensor:
    return full.chunk(dist.get_world_size())[dist.get_rank()]


def sharded(inputs: Inputs) -> Inputs:
    return replace(inputs, weight=my_part(inputs.weight))


def sharded_results(inputs: Inputs, **options: Any) -> Results:
    return results(linear_logprob, sharded(inputs), tp_group=dist.group.WORLD, **options)


def of_this_rank(whole: Results) -> Results:
    return {**whole, "weight.grad": my_part(whole["weight.grad"])}


@contextmanager
def waiting(is_free: bool) -> Iterator[None]:
    """If it is not free, the path of a GPU is taken, where no number is read back to the host."""
    with mock.patch("mcore_unpatch.compat.fused_head.plan.waiting_is_free", return_value=is_free):
        yield


def compare_with_float64(inputs: Inputs, shared: dict[str, Any], device_only: bool = False, **options: Any) -> None:
    truth = of_this_rank(results(materialised, inputs.in_float64(), **shared))
    with waiting(not device_only):
        found = sharded_results(inputs, **shared, **options)
    plain = None
    if inputs.weight.dtype == torch.float32:  # in 16 bits the materialised path rounds its logits, and allows too much
        plain = of_this_rank(results(materialised, inputs, **shared))
    assert_exact(found, truth, inputs, plain)


def whole_and_padded_shards(vocab: int) -> None:
    for device_only, vocab_size in product((False, True), (None, 61)):
        shared = {"vocab_size": vocab_size, "temperature": 0.7}
        compare_with_float64(make_inputs((5, 7), 16, vocab), shared, device_only, tile_bytes=9_000)


@pytest.mark.parametrize("ranks", [2, 4])
def test_whole_and_padded_shards(ranks: int) -> None:
    run_on_ranks(RELEASE, ranks, whole_and_padded_shards, 100)


@on_ranks(2, release=RELEASE)
def test_odd_shapes_low_precision_and_every_statistic() -> None:
    for tokens, width, vocab in ((3, 33, 2), (1, 1, 8), (3, 33, 50258), (4097, 1, 8), (0, 5, 8)):
        compare_with_float64(make_inputs(tokens, width, vocab), {})
    for dtype in (torch.bfloat16, torch.float16):
        compare_with_float64(make_inputs(40, 32, 500, dtype), {}, tile_bytes=60_000)
    how: dict[str, Any] = {"share": (dist.get_rank(), 2), "tp_group": dist.group.WORLD}
    for dtype, vocab_size in product((torch.float32, torch.bfloat16), (None, 90)):
        check_statistics(dtype, "cpu", (30, 16, 100), vocab_size=vocab_size, **how)


# Shards whose peaks lie farther apart than the exponent of a float32 reaches (e**88).
@pytest.mark.parametrize("offsets", [(0, 256), (256, 0), (-256, 256)], ids=str)
@on_ranks(2, release=RELEASE)
def test_shards_whose_peaks_lie_far_apart(offsets: tuple[int, int]) -> None:
    inputs = make_inputs(9, 8, 30)
    inputs.hidden[:, 0] = 1
    inputs.weight[:, 0] = torch.tensor(offsets).repeat_interleave(15)
    truth = of_this_rank(results(materialised, inputs.in_float64()))
    assert_agree(sharded_results(inputs), truth, sums=8, peak=256)


@on_ranks(2, release=RELEASE)
def test_masks_down_to_no_row_at_all() -> None:
    for live, device_only in product((0, 1, 6), (False, True)):
        shared = {"mask": torch.arange(9) < live}
        bound = live + 1 if device_only else None
        compare_with_float64(make_inputs(9, 8, 30), shared, device_only, max_rows=bound)


@on_ranks(2, release=RELEASE)
def test_labels_that_are_no_tokens() -> None:
    inputs = make_inputs(6, 8, 30)
    inputs.labels[1], inputs.labels[3], inputs.labels[4] = -100, 30, 1000
    for option in ("zero", "legacy"):
        alone = of_this_rank(results(linear_logprob, inputs, out_of_vocab_grad=option))
        assert_agree(sharded_results(inputs, out_of_vocab_grad=option), alone)


@on_ranks(2, release=RELEASE)
def test_the_callers_own_reduction_of_the_hidden_gradient() -> None:
    inputs = make_inputs(6, 8, 30)
    part = sharded_results(inputs, reduce_hidden_grad=False)["hidden.grad"]
    truth = results(materialised, inputs.in_float64())["hidden.grad"]
    assert (part - truth).norm() > 0.1
    dist.all_reduce(part)
    assert_close(part, truth)


def count_collectives(tile_bytes: int, **options: Any) -> tuple[list[str], list[str]]:
    inputs = make_inputs(20, 8, 150)
    hidden, weight = inputs.hidden.requires_grad_(), my_part(inputs.weight).requires_grad_()
    with OrderOfWork() as forward:
        out = vocab_pass(
            hidden, weight, inputs.labels, tp_group=dist.group.WORLD, entropy=True, tile_bytes=tile_bytes, **options
        )
    assert out.logprobs is not None
    assert out.entropy is not None
    with OrderOfWork() as backward:
        (out.logprobs.sum() + out.entropy.sum()).backward()
    return forward.collectives(), backward.collectives()


@on_ranks(2, release=RELEASE)
def test_a_constant_number_of_collectives_the_last_beside_the_last_product() -> None:
    for options in ({}, {"mask": torch.arange(20) % 2}, {"topk": 3}):
        forward = ["_allgather_base_"] * (3 if "topk" in options else 2)  # the first is for a CPU alone
        for tile_bytes in (1_000, 10_000, 10_000_000):
            assert count_collectives(tile_bytes, **options) == (forward, ["allreduce_"]), tile_bytes
    inputs = make_inputs(40, 8, 300)
    hidden, weight = inputs.hidden.requires_grad_(), my_part(inputs.weight).requires_grad_()
    logprobs, _ = linear_logprob(hidden, weight, inputs.labels, tp_group=dist.group.WORLD)
    with OrderOfWork() as order:
        logprobs.sum().backward()
    assert order.names == ["product", "product", "allreduce_", "product"]


@pytest.mark.parametrize("device_only", [False, True])
@pytest.mark.parametrize("vocab", [32, 52])
@on_ranks(2, release=RELEASE)
def test_top_k_over_all_shards(vocab: int, device_only: bool) -> None:
    inputs = make_inputs(12, 8, vocab)
    logits = inputs.hidden.double() @ inputs.weight.double()[:28].t()
    hidden, weight = inputs.hidden.requires_grad_(), my_part(inputs.weight)
    with waiting(not device_only):
        out = vocab_pass(hidden, weight, topk=7, vocab_size=28, tp_group=dist.group.WORLD, tile_bytes=5_000)
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
    mine = replace(inputs, weight=inputs.weight.chunk(2)[place])
    truth = dict(results(materialised, inputs.in_float64()))
    truth["weight.grad"] = truth["weight.grad"].chunk(2)[place]
    assert_exact(results(linear_logprob, mine, tp_group=groups[pair]), truth, inputs)
    with pytest.raises(TypeError, match="tp_group: expected a process group this rank belongs to"):
        results(linear_logprob, mine, tp_group=groups[1 - pair])


@on_ranks(2, release=RELEASE)
def test_recompute_under_tensor_parallelism() -> None:
    inputs = make_inputs(5, 8, 30)

    def recomputed(hidden: Tensor, weight: Tensor, labels: Tensor, **options: Any) -> Any:
        return checkpoint(lambda h: linear_logprob(h, weight, labels, **options), hidden, use_reentrant=False)

    straight = sharded_results(inputs)
    again = results(recomputed, sharded(inputs), tp_group=dist.group.WORLD)
    assert all(torch.equal(straight[name], again[name]) for name in straight)


@on_ranks(2, release=RELEASE)
def test_a_vocabulary_that_the_shards_have_not() -> None:
    inputs = sharded(make_inputs(5, 8, 30))
    with pytest.raises(ValueError, match="vocab_size: expected at most 30, the number of weight rows on all ranks of"):
        linear_logprob(inputs.hidden, inputs.weight, inputs.labels, tp_group=dist.group.WORLD, vocab_size=31)


@on_ranks(2, release=RELEASE)
def test_rows_without_a_label_are_left_out_on_every_rank() -> None:
    inputs = make_inputs(20, 8, 30)
    inputs.labels[torch.arange(20) % 10 > 0] = -100
    masked = sharded_results(inputs, mask=inputs.labels != -100, ignore_index=None)
    for device_only, bound in ((False, None), (True, None), (True, 2)):
        with waiting(not device_only):
            found = sharded_results(inputs, max_rows=bound)
        assert all(torch.equal(found[name], masked[name]) for name in masked), (device_only, bound)


@pytest.mark.parametrize("what", ["tokens", "mask", "labels", "width"])
@on_ranks(2, release=RELEASE)
def test_ranks_with_other_rows_are_told(what: str) -> None:
    """On a CPU, where it costs no wait; on a GPU by TORCH_DISTRIBUTED_DEBUG=DETAIL, which is torch's own."""
    rank, inputs, options = dist.get_rank(), make_inputs(5, 8, 30), dict[str, Any]()
    hidden, weight, labels = inputs.hidden, my_part(inputs.weight), inputs.labels
    fewer = torch.arange(5) < 2 * rank
    if what == "tokens":
        hidden, labels = hidden[: 5 - rank], labels[: 5 - rank]
    elif what == "mask":
        options["mask"] = ~fewer
    elif what == "labels":
        labels = labels.masked_fill(fewer, -100)
    else:
        hidden, weight = hidden[:, : 8 - rank], weight[:, : 8 - rank]
    expected = {"tokens": r"\[5, 4\]", "mask": r"\[5, 3\]", "labels": r"\[5, 3\]", "width": r"hidden size .* \[8, 7\]"}
    with pytest.raises(ValueError, match=expected[what]):
        linear_logprob(hidden, weight, labels, tp_group=dist.group.WORLD, **options)
    if what != "labels":
        with pytest.raises(ValueError, match=expected[what]):
            linear_kl(hidden, weight, hidden, weight, tp_group=dist.group.WORLD, **options)


@pytest.mark.parametrize("device_only", [False, True])
@on_ranks(2, release=RELEASE)
def test_unequal_shards_are_never_silent(device_only: bool) -> None:
    """They are found out with the results: an error, or NaN where that would mean waiting."""
    inputs = make_inputs(5, 8, 30)
    call = (inputs.hidden, inputs.weight.split([16, 14])[dist.get_rank()], inputs.labels)
    if not device_only:
        with pytest.raises(ValueError, match=r"same number of rows on every rank of tp_group, got \[16, 14\]"):
            linear_logprob(*call, tp_group=dist.group.WORLD)
        with pytest.raises(ValueError, match=r"same number of rows on every rank of tp_group, got \[16, 14\]"):
            linear_kl(*call[:2], *call[:2], tp_group=dist.group.WORLD)
        return
    with mock.patch("mcore_unpatch.compat.fused_head.problem.waiting_is_free", return_value=False):
        logprobs, entropy = linear_logprob(*call, entropy=True, tp_group=dist.group.WORLD)
        divergence = linear_kl(*call[:2], *call[:2], tp_group=dist.group.WORLD)
    assert entropy is not None
    assert logprobs.isnan().all()
    assert entropy.isnan().all()
    assert divergence.isnan().all()
