"""Megatron's own router replay, as docs/recipes.md drives it, beside the patch of veRL 0.8 that masks nothing."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.files import from_page, load_file
from harness.models import Case, build_config
from harness.rounding import assert_agree
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.moe.router_replay import RouterReplay, RouterReplayAction
from torch import Tensor

SETTINGS: list[dict[str, Any]] = [
    {},
    {"moe_router_pre_softmax": True, "moe_router_topk_scaling_factor": 2.5},
    {"moe_router_score_function": "sigmoid"},
    {"moe_router_num_groups": 2, "moe_router_group_topk": 1},
]
recipe = partial(from_page, "recipes.md")


@pytest.fixture(scope="module")
def verl_patch() -> str:
    from downloads import unpacked  # which the ranks do not have

    return str(unpacked("verl", "0.8.0") / "verl/utils/megatron/router_replay_patch.py")


def _router(**settings: Any) -> TopKRouter:
    config = build_config(Case())
    given = {"num_moe_experts": 8, "moe_router_topk": 2, "moe_enable_routing_replay": True, "moe_aux_loss_coeff": 0.0}
    for name, value in (given | settings).items():
        setattr(config, name, value)
    router = TopKRouter(config, pg_collection=ProcessGroupCollection.use_mpu_process_groups())
    router.layer_number = 1
    return router


def _logits(seed: int, dtype: torch.dtype) -> Tensor:
    logits = torch.randn(12, 2, 8, generator=torch.Generator().manual_seed(seed))
    return logits.to(dtype).requires_grad_()


def _probabilities(routing: Any, seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities, the map, and the gradient of the logits."""
    logits = _logits(seed, dtype)
    probs, routing_map = routing(logits)
    weights = torch.randn(probs.shape, generator=torch.Generator().manual_seed(5))
    torch.autograd.backward((probs * weights).sum())
    assert logits.grad is not None
    return probs.detach(), routing_map, logits.grad


@on_ranks
def test_it_gives_what_the_patch_gave(verl_patch: str) -> None:
    verl = load_file(Path(verl_patch))
    record, replay = recipe("record_routes"), recipe("replay_routes")
    for settings in SETTINGS:
        RouterReplay.clear_global_router_replay_instances()
        router, patched = _router(**settings), _router(**settings)
        RouterReplay.global_router_replay_instances.remove(patched.router_replay)
        patched.router_replay = theirs = verl.RouterReplay()
        routing = partial(verl.patched_routing, patched)
        theirs.set_router_replay_action(verl.RouterReplayAction.RECORD)
        routing(_logits(1, torch.float32))
        routes = record(lambda router=router: router.routing(_logits(1, torch.float32)))
        assert torch.equal(routes[0], theirs.get_recorded_indices())
        theirs.set_target_indices(routes[0])
        theirs.set_router_replay_action(verl.RouterReplayAction.REPLAY_FORWARD)
        for dtype in (torch.float32, torch.bfloat16):
            probs, routing_map, gradient = replay(routes, partial(_probabilities, router.routing, 2, dtype))
            old_probs, old_map, old_gradient = _probabilities(routing, 2, dtype)
            assert torch.equal(routing_map, old_map)
            assert not torch.equal(routing_map, router.routing(_logits(2, dtype))[1])  # it would have chosen others
            found, truth = {"probs": probs, "gradient": gradient}, {"probs": old_probs, "gradient": old_gradient}
            assert_agree(found, truth, dtype, sums=8)  # experts
    RouterReplay.clear_global_indices()
    RouterReplay.set_global_router_replay_action(RouterReplayAction.REPLAY_FORWARD)
    with pytest.raises(AttributeError):
        router.routing(_logits(2, torch.float32))
    RouterReplay.clear_global_router_replay_instances()
