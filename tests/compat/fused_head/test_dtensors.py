"""Heads that are DTensors, on real gloo ranks: tensor parallelism by DTensor, and FSDP2's `fully_shard`."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from fused_head.oracle import grad_of, make_inputs, results
from harness import on_ranks
from harness.rounding import assert_agree
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from mcore_unpatch.compat import linear_logprob

RELEASE = "0.19.2"  # the operator uses nothing of Megatron; the ranks come with one


def mesh_of_all() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))


@on_ranks(2, release=RELEASE)
@pytest.mark.parametrize("traced", [False, True])
def test_shards_of_the_vocabulary(traced: bool) -> None:
    mesh, made = mesh_of_all(), make_inputs((2, 5), 16, 42)
    truth = results(linear_logprob, made)
    hidden = made.hidden.clone().requires_grad_()
    weight = distribute_tensor(made.weight, mesh, [Shard(0)]).requires_grad_()
    call = torch.compile(linear_logprob, fullgraph=True, backend="aot_eager") if traced else linear_logprob
    out = call(hidden, weight.to_local(), made.labels, entropy=True, tp_group=weight.device_mesh.get_group())
    torch.autograd.backward([out.logprobs, needed(out.entropy)], [made.logprob_grad, made.entropy_grad])
    weight_grad = grad_of(weight)
    assert isinstance(weight_grad, DTensor) and weight_grad.placements == (Shard(0),)
    found = {"logprobs": out.logprobs.detach(), "entropy": needed(out.entropy).detach()}
    found |= {"hidden.grad": grad_of(hidden), "weight.grad": weight_grad.full_tensor()}
    assert_agree(found, truth)


def needed(value: Tensor | None) -> Tensor:
    assert value is not None
    return value


@on_ranks(2, release=RELEASE)
@pytest.mark.parametrize("apart", [False, True])
def test_fully_shard(apart: bool) -> None:
    """A head that is wrapped apart is made whole by `unshard`, as the error says."""
    mesh, made = init_device_mesh("cpu", (2,)), make_inputs(7, 16, 40)
    torch.manual_seed(0)
    model, whole = (nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 40)) for _ in range(2))
    whole.load_state_dict(model.state_dict())
    if apart:
        fully_shard(model[1], mesh=mesh)
    fully_shard(model, mesh=mesh).unshard()  # type: ignore[attr-defined]

    def loss(of: Any) -> Tensor:
        return linear_logprob(of[0](made.hidden), of[1].weight, made.labels).logprobs.sum()

    if apart:
        with pytest.raises(
            TypeError, match=r"weight: expected a plain tensor, got a DTensor; .* or unshard\(\) before"
        ):
            loss(model)
        model[1].unshard()  # type: ignore[operator]
    assert_agree({"loss": loss(model).detach()}, {"loss": loss(whole).detach()})


@on_ranks(2, release=RELEASE)
def test_what_is_no_plain_tensor_is_refused() -> None:
    mesh, made = mesh_of_all(), make_inputs((2, 5), 16, 40)
    shard, spread = (
        distribute_tensor(made.weight, mesh, [Shard(0)]),
        distribute_tensor(made.hidden, mesh, [Replicate()]),
    )
    for hidden, weight, name in ((made.hidden, shard, "weight"), (spread, made.weight, "hidden")):
        with pytest.raises(TypeError, match=rf"{name}: expected a plain tensor, got a DTensor; pass its to_local\(\)"):
            linear_logprob(hidden, weight, made.labels)
