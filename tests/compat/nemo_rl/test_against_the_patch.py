"""NeMo RL's own class patch, from its checkout, and the shim: the same model, the same call, the same numbers.

The flag and `numbers="nemo_rl"`, which a migration writes, give them everywhere; Megatron's own are the same in most
places; test_promised_numbers.py says where they are others.
"""

import inspect
from typing import Any

import pytest
from downstream.checkouts import NEMO_RL, checkouts, nemo_rl_patch
from downstream.nemo_rl_calls import CHUNK, FLAG, KEPT, SAME, call_of, values_and_gradients, with_the_flag
from harness import on_ranks
from harness.models import Case
from harness.rounding import assert_agree, assert_close
from torch import Tensor

from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs


def assert_same(ours: tuple[Tensor, dict[str, Tensor]], theirs: tuple[Tensor, dict[str, Tensor]]) -> None:
    """In bf16 the patch adds up the weight's gradient in bf16, chunk after chunk: its error is a few roundings more."""
    assert ours[0].dtype == theirs[0].dtype
    dtype = next(iter(theirs[1].values())).dtype
    assert_close(ours[0], theirs[0], dtype)
    assert_agree(ours[1], theirs[1], dtype)
    learns = {name: gradient.abs().max() > 0 for name, gradient in theirs[1].items() if "weight" in name}
    assert all(learns[name] is not name.startswith("mtp.") for name in learns), learns


def reads_the_layers_weight_alone(utils: Any) -> bool:
    """0.6.0 is handed the shared embedding of a tied model and does not use it: such models crash there."""
    return "output_weight" in inspect.signature(utils.from_parallel_hidden_states_to_logprobs).parameters


@pytest.mark.parametrize("checkout", checkouts(NEMO_RL))
@pytest.mark.parametrize("case", [*SAME, *KEPT], ids=str)
@on_ranks
def test_values_and_every_gradient_are_those_of_the_patch(case: Case, model: Any, checkout: str) -> None:
    call = call_of(case)
    with nemo_rl_patch(checkout, CHUNK) as utils:
        if case.tied and reads_the_layers_weight_alone(utils):
            with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'T'"):
                model(**call, **FLAG)
            return
        theirs = values_and_gradients(model, **call, **FLAG)
    assert theirs[0].shape == (call["labels"].shape[0], call["labels"].shape[1] - 1)
    assert_same(values_and_gradients(with_the_flag(case), **call, **FLAG), theirs)
    kept = linear_ce_fusion_kwargs(model, chunk_size=CHUNK, numbers="nemo_rl")
    assert_same(values_and_gradients(model, **call, **kept), theirs)
    if case in SAME:
        assert_same(values_and_gradients(model, **call, **linear_ce_fusion_kwargs(model, chunk_size=CHUNK)), theirs)
    assert model.config.mtp_num_layers == (case.mtp or None)
