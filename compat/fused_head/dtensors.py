"""Heads that are DTensors: this rank's tensors, and who holds the other shards.

Tensor parallelism cuts a head over ranks that have the same tokens, FSDP2 over ranks that have different ones. The
weight alone does not say which: hidden states that are a DTensor on the same mesh do, or a `tp_group`.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Tensor
from torch.distributed import ProcessGroup, get_process_group_ranks
from torch.distributed.tensor import DTensor, Replicate, Shard

_Given = TypeVar("_Given")

_FULLY_SHARD = (
    "if fully_shard made it, call from the forward of the module that was wrapped together with its head, where the "
    "weight is whole, or call head.unshard() before"
)


def local_parts(
    hidden: Any, weight: Any, tp_group: ProcessGroup | str | None, rows: Mapping[str, Any]
) -> tuple[Any, Any, ProcessGroup | str | None, dict[str, Any]]:
    """Hidden states, weight, the group of the shards and the other tensors as the operator takes them."""
    plain = {name: _same_everywhere(name, value) for name, value in rows.items()}
    if not isinstance(weight, DTensor):
        if isinstance(hidden, DTensor):
            raise TypeError(
                "hidden: expected a plain tensor, because weight is one, got a DTensor; pass hidden.to_local(), or "
                "both as DTensors on the mesh of the tensor-parallel ranks."
            )
        return hidden, weight, tp_group, plain
    mesh = weight.device_mesh
    if mesh.ndim != 1 or weight.placements != (Shard(0),):
        raise ValueError(
            f"weight: expected a plain tensor, or a DTensor with the rows of the vocabulary on a mesh of one dimension "
            f"(Shard(0)), got {_shown(weight)}; {_FULLY_SHARD}."
        )
    group: ProcessGroup = mesh.get_group()
    if tp_group is not None and not _same_ranks(tp_group, group):
        raise ValueError(
            "tp_group: expected the group that holds the weight's shards, weight.device_mesh.get_group() with ranks "
            f"{get_process_group_ranks(group)}, got another; for other shards than those of tensor parallelism: "
            f"{_FULLY_SHARD}."
        )
    if isinstance(hidden, DTensor):
        if hidden.device_mesh != mesh or hidden.placements != (Replicate(),):
            raise ValueError(
                f"hidden: expected a DTensor that is replicated on the weight's mesh, got {_shown(hidden)}; call "
                "hidden.redistribute(weight.device_mesh, [Replicate()])."
            )
        hidden = hidden.to_local()
    elif tp_group is None:
        raise ValueError(
            f"weight: a DTensor ({_shown(weight)}) beside plain hidden states does not say what its ranks share; if "
            "they hold the shards of one head and have the same tokens, pass tp_group=weight.device_mesh.get_group(); "
            f"{_FULLY_SHARD}."
        )
    return hidden, weight.to_local(), group, plain


def _same_ranks(given: ProcessGroup | str, group: ProcessGroup) -> bool:
    if isinstance(given, str):
        return given == group.group_name
    return get_process_group_ranks(given) == get_process_group_ranks(group)


def _same_everywhere(name: str, value: _Given) -> _Given | Tensor:
    if not isinstance(value, DTensor):
        return value
    if any(placement != Replicate() for placement in value.placements):
        raise ValueError(f"{name}: expected a plain tensor or a replicated DTensor, got {_shown(value)}")
    local: Tensor = value.to_local()
    return local


def _shown(value: DTensor) -> str:
    return f"placements {value.placements} on {value.device_mesh}"
