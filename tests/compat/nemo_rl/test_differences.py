"""Where NeMo RL's patch cannot run and the shim does; test_promised_numbers.py has where their numbers are others."""

from typing import Any

import pytest
import torch
from downstream.checkouts import NEMO_RL, checkouts, nemo_rl_patch
from downstream.nemo_rl_calls import CHUNK, FLAG, call_of, patched
from harness import on_ranks
from harness.models import Case, build_model
from harness.training import under_the_optimizer

from mcore_unpatch.compat import Logits
from mcore_unpatch.compat.hook.call import LegacyPatchError
from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs

pytestmark = pytest.mark.parametrize("checkout", checkouts(NEMO_RL))


@pytest.mark.parametrize(
    ("case", "kind", "said"),
    [
        (Case(tp=2), RuntimeError, "broadcast shape"),  # it gathers hidden states that nobody split
        (Case(cp=2), AssertionError, "Context parallelism is not supported"),
    ],
    ids=str,
)
@on_ranks(release="0.19.2")
def test_parallelism_that_the_patch_does_not_know(
    case: Case, kind: type[Exception], said: str, model: Any, checkout: str
) -> None:
    with nemo_rl_patch(checkout, CHUNK), pytest.raises(kind, match=said):
        model(**call_of(case), **FLAG).sum().backward()


@on_ranks(release="0.19.2")
def test_other_users_of_the_hook(case: Case, model: Any, checkout: str) -> None:
    """A class with the patch rejects every caller that passes a processor."""
    with nemo_rl_patch(checkout, CHUNK), pytest.raises(TypeError, match="output_processor"):
        model(**call_of(case), output_processor=Logits())
    linear_ce_fusion_kwargs(model)
    model(**call_of(case), output_processor=Logits())


@on_ranks(release="0.19.2")
def test_a_model_that_is_still_patched_is_refused_by_the_patchs_name(case: Case, model: Any, checkout: str) -> None:
    name = r"nemo_rl\.distributed\.model_utils\._gpt_forward_with_linear_ce_fusion"
    with nemo_rl_patch(checkout, CHUNK), pytest.raises(LegacyPatchError, match=name):
        linear_ce_fusion_kwargs(model)
    with patched(), nemo_rl_patch(checkout, CHUNK), pytest.raises(LegacyPatchError, match=name):
        build_model(case)


@on_ranks(Case(dp=2), release="0.19.2")
def test_overlap_param_gather_trips_megatrons_assertion_there(case: Case, checkout: str) -> None:
    """The patch reads a weight whose gather nobody waits for; NeMo RL forbids the pair. Here the gather is awaited."""

    def losses(legacy: bool) -> torch.Tensor:
        def loss_of(ddp: Any) -> torch.Tensor:
            flag = FLAG if legacy else linear_ce_fusion_kwargs(ddp, chunk_size=CHUNK)
            loss: torch.Tensor = -ddp(**call_of(case), **flag).mean()
            return loss

        return under_the_optimizer(case, loss_of, overlap=True)

    with nemo_rl_patch(checkout, CHUNK), pytest.raises(AssertionError):
        losses(legacy=True)
    ours = losses(legacy=False)
    assert ours[-1] < ours[0] - 0.01
