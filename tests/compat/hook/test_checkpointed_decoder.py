"""A decoder that is computed again in the backward: no bypass, and the gradients of one that is not."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case
from harness.oracle import gradients_of
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

from mcore_unpatch.compat import HookBypassedError, LogProbs, attach

CASES = [Case(), Case(hybrid=True), Case(mtp=1), Case(recompute=True)]


def _gradients(model: Any, inputs: Any) -> dict[str, torch.Tensor]:
    model.zero_grad()
    torch.autograd.backward(model(**inputs).sum())
    return gradients_of(model)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
@on_ranks
def test_a_wrapper_put_around_it_after_attach(case: Case, reentrant: bool, model: Any, inputs: Any) -> None:
    with attach(model, LogProbs()):
        expected = _gradients(model, inputs)
        how = CheckpointImpl.REENTRANT if reentrant else CheckpointImpl.NO_REENTRANT
        inner = model.decoder
        model.decoder = checkpoint_wrapper(inner, how)
        runs: list[int] = []
        inner.register_forward_pre_hook(lambda *_: runs.append(1))
        found = _gradients(model, inputs)
        assert len(runs) == 2
        for name, gradient in expected.items():
            assert torch.equal(found[name.replace("decoder.", "decoder._checkpoint_wrapped_module.")], gradient), name
        with pytest.raises(HookBypassedError):
            model.forward(**inputs)
