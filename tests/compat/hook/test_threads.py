"""Two threads in one model: each call has its own state, and what cannot be shared is refused."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from harness import run_on_ranks
from harness.models import Case, batch_of, build_model, start_world
from harness.pool import MAIN

from mcore_unpatch.compat import HookBypassedError, LogProbs, attach, call_with_processor

CALLS = 24


@pytest.fixture
def threaded(release: str) -> str:
    if release == MAIN:
        pytest.skip("on its main branch Megatron's own layers share the state of activation offloading among threads")
    return release


def _at_once(work: Any) -> list[Any]:
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(work, range(CALLS)))


def _two_threads(case: Case) -> None:
    start_world(case)
    model = build_model(case)
    batches = [{**batch_of(case, seed), "attention_mask": None} for seed in range(CALLS)]
    expected = [call_with_processor(model, LogProbs(), **batch).detach() for batch in batches]
    with attach(model, LogProbs()):
        found = _at_once(lambda number: model(**batches[number]).detach())
    assert [torch.equal(a, b) for a, b in zip(found, expected, strict=True)].count(False) == 0
    found = _at_once(lambda number: call_with_processor(model, LogProbs(), **batches[number]).detach())
    assert [torch.equal(a, b) for a, b in zip(found, expected, strict=True)].count(False) == 0
    with attach(model, LogProbs()):

        def works_or_goes_past(number: int) -> bool:
            if number % 2:
                return torch.equal(model(**batches[number]), expected[number])
            with pytest.raises(HookBypassedError):
                model.forward(**batches[number])
            return True

        assert all(_at_once(works_or_goes_past))


@pytest.mark.parametrize("case", [Case(), Case(hybrid=True), Case(hybrid=True, mtp=1)], ids=str)
def test_each_call_has_its_own_state(threaded: str, case: Case) -> None:
    run_on_ranks(threaded, 1, _two_threads, case)
