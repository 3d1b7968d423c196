"""Pipeline parallelism: only the last stage has an output; these functions send it to the other stages."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.hook.call import Outputs


def is_last_stage(pp_group: ProcessGroup | None) -> bool:
    """Whether this rank holds the output layer."""
    return pp_group is None or pp_group.rank() == pp_group.size() - 1


def compute_on_last_stage(compute: Callable[[], Any], pp_group: ProcessGroup | None, device: torch.device) -> Any:
    """Call `compute` on the last stage only, and return its result on every stage."""
    return broadcast_from_last_stage(compute() if is_last_stage(pp_group) else None, pp_group, device)


def broadcast_from_last_stage(result: Any, pp_group: ProcessGroup | None, device: torch.device) -> Any:
    """`result` of the last stage on every stage: tensors, or `Outputs`, dicts, tuples and lists of them, nested.

    What other stages pass is ignored. Tensors arrive on `device` and without a graph: the backward belongs to the last
    stage. On that stage `result` itself is returned, graph and all.
    """
    if pp_group is None or pp_group.size() == 1:
        return result
    last = pp_group.size() - 1
    tensors: list[Tensor] = []
    plan = _describe(result, tensors) if is_last_stage(pp_group) else None
    message = [plan]
    torch.distributed.broadcast_object_list(message, group=pp_group, group_src=last)
    if is_last_stage(pp_group):
        for tensor in tensors:
            torch.distributed.broadcast(tensor.detach().contiguous(), group=pp_group, group_src=last)
        return result
    return _rebuild(message[0], device, pp_group, last)


class _Hole(tuple[torch.Size, torch.dtype]):
    """The place of a tensor in the description of a result: its shape and its dtype."""


def _describe(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value)
        return _Hole((value.shape, value.dtype))
    return _map(value, lambda item: _describe(item, tensors))


def _rebuild(plan: Any, device: torch.device, group: ProcessGroup, source: int) -> Any:
    if isinstance(plan, _Hole):
        tensor = torch.empty(plan[0], dtype=plan[1], device=device)
        torch.distributed.broadcast(tensor, group=group, group_src=source)
        return tensor
    return _map(plan, lambda item: _rebuild(item, device, group, source))


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """A container of the same kind with every item changed; anything else as it is."""
    if isinstance(value, Mapping):
        items = {key: change(item) for key, item in value.items()}
        return Outputs(**items) if isinstance(value, Outputs) else items
    if isinstance(value, (tuple, list)):
        changed = [change(item) for item in value]
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    return value
