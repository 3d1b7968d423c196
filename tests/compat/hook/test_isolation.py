"""What one user of the hook does reaches no other: models, blocks, threads, failed calls, and what is left."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from harness import on_ranks, run_on_ranks
from harness.models import Case, batch_of, build_model, start_world
from harness.pool import MAIN
from harness.rounding import assert_close

from mcore_unpatch.compat import (
    HookBypassedError,
    HookError,
    HookMissingError,
    LogProbs,
    attach,
    call_with_processor,
    provide_hook,
)

KINDS = [Case(), Case(hybrid=True)]


def _untouched(model: Any) -> bool:
    return not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("case", KINDS, ids=str)
@on_ranks
def test_two_processors_on_two_models(case: Case, inputs: Any) -> None:
    first, second, third = (build_model(case) for _ in range(3))
    with torch.no_grad():
        second.output_layer.weight.mul_(2)
    loss, other = first(**inputs), second(**inputs)
    with attach(first, LogProbs()), attach(second, LogProbs(temperature=2.0)):
        for _ in range(2):
            assert_close(first(**inputs), -loss)
            assert_close(second(**inputs), -loss)  # twice the logits at twice the temperature
        assert torch.equal(third(**inputs), loss)
    assert torch.equal(second(**inputs), other)
    assert all(map(_untouched, (first, second, third)))


@on_ranks
def test_blocks_restore_what_they_found(inputs: Any) -> None:
    model = build_model(Case())
    loss = model(**inputs)
    kept = attach(model, LogProbs())
    for _ in range(2):  # a block leaves alone what was there before it
        with attach(model, LogProbs()) as inner:
            assert inner is kept
        assert_close(model(**inputs), -loss)
    with kept, kept:
        assert_close(model(**inputs), -loss)
    assert torch.equal(model(**inputs), loss)
    with pytest.raises(HookError, match="this handle was removed"), kept:
        pass
    with attach(model, LogProbs()):  # and what was attached within it for good
        held = attach(model, LogProbs())
        with attach(model, LogProbs()):
            pass
    assert_close(model(**inputs), -loss)
    held.remove()
    with pytest.raises(ZeroDivisionError), attach(model, LogProbs()):
        _ = 1 / 0
    for wrong in (LogProbs, None):
        with pytest.raises(TypeError, match=r"processor: (pass an instance|expected a callable)"):
            attach(model, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="an empty list"):
        attach([], LogProbs())
    assert _untouched(model)


@on_ranks
def test_chunks_are_attached_all_or_none() -> None:
    good, bad = build_model(Case(hybrid=True)), build_model(Case())
    bad.forward = lambda input_ids: input_ids
    with pytest.raises(HookMissingError):
        attach([good, bad], LogProbs())
    assert _untouched(good)


@pytest.mark.parametrize("case", KINDS, ids=str)
@on_ranks
def test_a_failure_leaves_nothing_behind(case: Case, inputs: Any) -> None:
    model = build_model(case)
    loss = model(**inputs)

    def fails(**keywords: Any) -> Any:
        raise ZeroDivisionError

    def fails_inside(module: Any, args: Any, output: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        call_with_processor(model, fails, **inputs)
    assert _untouched(model)
    seen: list[weakref.ref[torch.Tensor]] = []
    watch = model.decoder.register_forward_hook(lambda module, args, output: seen.append(weakref.ref(output)))
    with provide_hook(model), attach(model, LogProbs()):
        for place in (model.decoder, model.output_layer):
            broken = place.register_forward_hook(fails_inside)
            with pytest.raises(ZeroDivisionError):
                model(**inputs)
            broken.remove()
        gc.collect()
        assert all(hidden() is None for hidden in seen), "a failed call keeps its tensors"
        assert_close(model(**inputs), -loss)
    watch.remove()
    assert _untouched(model)
    assert torch.equal(model(**inputs), loss)


@pytest.mark.parametrize("case", KINDS, ids=str)
@on_ranks
def test_a_model_that_is_let_go_while_attached_is_freed(case: Case) -> None:
    model = build_model(case)
    attach(model, LogProbs())
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


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
