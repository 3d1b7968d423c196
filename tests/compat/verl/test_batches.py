"""Batches as veRL lays them out, in one process: each plan, shift and mask in exact numbers."""

from dataclasses import make_dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from mcore_unpatch.compat.verl import batches

PLAIN = {"fp8": None, "experimental_attention_variant": None}
FP8 = {**PLAIN, "fp8": "hybrid"}
WINDOWED = {**PLAIN, "experimental_attention_variant": "dsv4_hybrid", "csa_window_size": 24}


def group(size: int, rank: int = 0) -> Any:
    return SimpleNamespace(size=lambda: size, rank=lambda: rank)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Megatron that says how many ranks there are, without any."""

    def lay_out(tp: int = 1, cp: int = 1, rank: int = 0) -> None:
        state = batches.parallel_state
        monkeypatch.setattr(state, "get_tensor_model_parallel_world_size", lambda: tp)
        monkeypatch.setattr(state, "get_context_parallel_world_size", lambda: cp)
        monkeypatch.setattr(state, "get_context_parallel_group", lambda: group(cp, rank))

    lay_out()
    return lay_out


ROWS: list[tuple[dict[str, int], dict[str, Any], dict[str, Any], tuple[int, ...]]] = [
    ({"tp": 3, "cp": 2}, PLAIN, {}, (12, 12)),
    ({"tp": 3, "cp": 2}, PLAIN, {"cp_layout": "contiguous"}, (6, 6)),
    ({}, {**PLAIN, "fp8": "e4m3"}, {}, (16, 112)),
    ({"tp": 3}, FP8, {}, (48, 336)),
    ({"cp": 2}, FP8, {}, (16, 496)),
    ({}, WINDOWED, {}, (5, 19)),
    ({"cp": 2}, WINDOWED, {}, (8, 40)),
    ({}, {**WINDOWED, "csa_window_size": 4}, {}, (5, 3)),
    ({"cp": 2}, PLAIN, {"pad_to_length_bucket": 9}, (8, 10)),
    ({}, FP8, {"pad_to_length_bucket": 192}, (16, 368)),
    ({}, WINDOWED, {"pad_to_length_bucket": 7}, (5, 23)),
]


@pytest.mark.parametrize(("ranks", "config", "options", "padded"), ROWS)
def test_how_long_each_sequence_of_a_row_is(
    world: Any, ranks: dict[str, int], config: dict[str, Any], options: dict[str, Any], padded: tuple[int, ...]
) -> None:
    world(tp=ranks.get("tp", 1))
    cp = ranks.get("cp", 1)
    plan = batches.plan_row([5, 3], SimpleNamespace(**config), group(cp, cp - 1), **options)
    assert (plan.lengths, plan.padded, plan.cp_size, plan.cp_rank) == ((5, 3), padded, cp, cp - 1)
    assert plan.contiguous is ("cp_layout" in options)
    assert batches.plan_row([], SimpleNamespace(**config), None, **options).padded == ()
    world()
    assert batches.plan_row([5], SimpleNamespace(**PLAIN), None).padded == (5,)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"cp_layout": "other"}, "cp_layout: expected"), ({"pad_to_length_bucket": 0}, "pad_to_length_bucket: expected")],
)
def test_a_row_that_cannot_be(world: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        batches.plan_row([5, 3], SimpleNamespace(**PLAIN), None, **options)


MASK = torch.tensor([[0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])


@pytest.mark.parametrize("options", [{"cp_layout": "contiguous"}, {"local_cp_size": 1}])
def test_only_a_packed_row_has_a_layout_of_its_own(world: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match='data_format="bshd" needs cp_layout="zigzag" and no local_cp_size'):
        batches.batch_of(MASK, MASK, SimpleNamespace(**PLAIN), "bshd", **options)
    batch = batches.batch_of(MASK, MASK, SimpleNamespace(**PLAIN), **options)
    params = batch.arguments["packed_seq_params"]
    assert (params.local_cp_size, params.cp_group) == (options.get("local_cp_size"), None)


def test_the_ranks_of_one_micro_batch(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Megatron's, or as many as the micro-batch names, by either name of Megatron's getter."""
    world(cp=4, rank=3)
    whole = batches.cp_group_of(None)
    assert whole is not None
    assert (whole.size(), whole.rank()) == (4, 3)
    assert batches.cp_group_of(1) is None
    old, new = "get_hybrid_data_context_parallel_groups", "get_dynamic_data_context_parallel_groups"
    monkeypatch.setattr(batches.parallel_state, old, lambda group_size: group(group_size), raising=False)
    found = batches.cp_group_of(2)
    assert found is not None
    assert found.size() == 2
    for error in (KeyError, AssertionError):
        refuse = mock.Mock(side_effect=error)
        monkeypatch.setattr(batches.parallel_state, new, refuse, raising=False)
        with pytest.raises(ValueError, match=r"local_cp_size=2: Megatron has no context-parallel group of that size"):
            batches.cp_group_of(2)


def test_a_row_in_one_piece_needs_a_megatron_that_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(cp: int, layout: str) -> Any:
        plan = batches.plan_row([4], SimpleNamespace(**PLAIN), group(cp), cp_layout=layout)  # type: ignore[arg-type]
        return batches.packed_seq_params(plan, torch.device("cpu"))

    monkeypatch.setattr(batches.parallel_state, "get_tensor_model_parallel_world_size", lambda: 1)
    for cp, layout in ((1, "zigzag"), (1, "contiguous"), (2, "zigzag")):
        assert not hasattr(row(cp, layout), "cp_partition_mode")
    with pytest.raises(ValueError, match=r"needs PackedSeqParams\.cp_partition_mode, which this megatron-core lacks"):
        row(2, "contiguous")
    newer = make_dataclass("PackedSeqParams", [("cp_partition_mode", Any, None)], bases=(batches.PackedSeqParams,))
    monkeypatch.setattr(batches, "PackedSeqParams", newer)
    assert [row(2, layout).cp_partition_mode for layout in ("zigzag", "contiguous")] == ["zigzag", "contiguous"]
