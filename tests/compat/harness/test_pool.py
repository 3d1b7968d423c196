"""The ranks themselves: a job that fails, dies or hangs ends soon, says why, and leaves fresh ranks behind."""

import os
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from harness import run_on_ranks
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
