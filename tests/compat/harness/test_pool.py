"""The ranks themselves: a job that fails, dies or hangs ends soon, says why, and leaves fresh ranks behind."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from megatron.core import parallel_state

from harness import run_on_ranks
from harness.models import Case, start_world
from harness.pool import RankError

RELEASE = "0.19.2"


def _sum_of_ranks() -> float:
    total = torch.tensor(float(dist.get_rank()))
    dist.all_reduce(total)
    return total.item()


def _wait_for_the_others() -> None:
    dist.all_reduce(torch.ones(1))


def _one_fails(culprit: int) -> None:
    if dist.get_rank() == culprit:
        raise ArithmeticError("the one that failed")
    _wait_for_the_others()


def _one_exits(culprit: int) -> None:
    if dist.get_rank() == culprit:
        os._exit(3)
    _wait_for_the_others()


def _one_answers_what_cannot_travel(culprit: int) -> Any:
    return (lambda: None) if dist.get_rank() == culprit else None


def _one_fails_because_the_other_has_died(culprit: int) -> None:
    if dist.get_rank() == culprit:
        os._exit(4)
    with pytest.raises(RuntimeError):  # its own failure is the later one, and only a consequence
        _wait_for_the_others()
    raise ConnectionError("lost the other")


WAYS = [
    (_one_fails, r"ArithmeticError: the one that failed"),
    (_one_exits, r"died without a traceback \(exit code 3\)"),
    (_one_answers_what_cannot_travel, r"Can't (get|pickle) local object"),
    (_one_fails_because_the_other_has_died, r"died without a traceback \(exit code 4\)"),
]


@pytest.mark.parametrize(
    ("way", "said", "culprit"),
    [(*way, number % 2) for number, way in enumerate(WAYS)],  # each of the two ranks is the first for half of them
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_job_ends_on_all_ranks_with_the_failure_of_the_first(way: Any, said: str, culprit: int) -> None:
    assert run_on_ranks(RELEASE, 2, _sum_of_ranks) == [1.0, 1.0]
    with pytest.raises(RankError, match=rf"(?s)rank {culprit} of 2: .*{said}") as caught:
        run_on_ranks(RELEASE, 2, way, culprit)
    assert f"rank {1 - culprit} of 2" not in str(caught.value)
    assert run_on_ranks(RELEASE, 2, _sum_of_ranks) == [1.0, 1.0]


def _hangs(culprit: int) -> None:
    if dist.get_rank() == culprit:
        time.sleep(1000)
    _wait_for_the_others()


def test_no_job_outlives_its_limit_and_every_rank_says_where_it_stood() -> None:
    run_on_ranks(RELEASE, 2, _sum_of_ranks)
    with pytest.raises(RankError, match=r"_hangs did not end within 2 s") as caught:
        run_on_ranks(RELEASE, 2, _hangs, 1, limit=2)
    waiting, sleeping = str(caught.value).split("rank 1 of 2")
    assert "in all_reduce" in waiting
    assert "in _hangs" in sleeping
    assert run_on_ranks(RELEASE, 2, _sum_of_ranks) == [1.0, 1.0]


def _leave_a_mark() -> int:
    torch.harness_mark = True  # type: ignore[attr-defined]
    return os.getpid()


def _mark() -> tuple[bool, int]:
    return hasattr(torch, "harness_mark"), os.getpid()


def test_ranks_stay_between_jobs_and_are_fresh_after_a_failure() -> None:
    """What a failed job left in its processes is gone with them."""
    marked = run_on_ranks(RELEASE, 2, _leave_a_mark)
    assert run_on_ranks(RELEASE, 2, _mark) == [(True, pid) for pid in marked]
    with pytest.raises(RankError):
        run_on_ranks(RELEASE, 2, _one_fails, 0)
    for found, pid in run_on_ranks(RELEASE, 2, _mark):
        assert not found
        assert pid not in marked
    assert not any(Path(f"/proc/{pid}").exists() for pid in marked)


def _sum_over_tp(case: Case) -> tuple[int, float]:
    assert not parallel_state.model_parallel_is_initialized()
    start_world(case)
    group = parallel_state.get_tensor_model_parallel_group()
    total = torch.tensor(float(dist.get_rank()))
    dist.all_reduce(total, group=group)
    return id(group), total.item()


def test_jobs_of_as_many_ranks_share_a_world_and_its_layouts() -> None:
    """What a job laid out is not known to the next, but need not be made again, whoever sat out in between."""
    cases = [Case(tp=2), Case(dp=2), Case(), Case(tp=2)]
    first, other, _, again = (run_on_ranks(RELEASE, case.ranks, _sum_over_tp, case) for case in cases)
    assert first == again
    assert [[total for _, total in ranks] for ranks in (first, other)] == [[1.0, 1.0], [0.0, 1.0]]
