"""A decoder that is computed again in the backward: no bypass, and the gradients of one that is not."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case, build_model
from harness.oracle import gradients_of
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.nn import Module
from torch.utils.checkpoint import checkpoint

from mcore_unpatch.compat import HookBypassedError, LogProbs, attach

CASES = [Case(), Case(hybrid=True), Case(mtp=1), Case(recompute=True)]
REENTRANT = [False, True]


class _Checkpointed(Module):
    """A mix-in for a model whose code checkpoints `self.decoder`, put where the model finds it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        decoder = self._modules["decoder"]
        self._modules["decoder"] = _Around(decoder)
        try:
            return super().forward(*args, **kwargs)
        finally:
            self._modules["decoder"] = decoder


class _Around(Module):
    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.input_tensor = decoder.input_tensor  # which Megatron reads
        self.call = lambda **kwargs: checkpoint(decoder, use_reentrant=False, **kwargs)

    def forward(self, **kwargs: Any) -> Any:
        return self.call(**kwargs)


def _gradients(model: Any, inputs: Any) -> dict[str, torch.Tensor]:
    model.zero_grad()
    torch.autograd.backward(model(**inputs).sum())
    return gradients_of(model)


@pytest.mark.parametrize("reentrant", REENTRANT)
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


@pytest.mark.parametrize("case", CASES[:2], ids=str)
@on_ranks
def test_a_subclass_that_checkpoints_it(case: Case, model: Any, inputs: Any) -> None:
    with attach(model, LogProbs()):
        expected = _gradients(model, inputs)
    model = build_model(case)
    model.__class__ = type("Model", (_Checkpointed, type(model)), {})
    with attach(model, LogProbs()):
        found = _gradients(model, inputs)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], gradient) for name, gradient in expected.items())
