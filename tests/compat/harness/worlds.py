"""The gloo world of a rank and Megatron's process groups in it, kept for the next job: most jobs cost less than these.

A rank lives in one world, and every layout that was made in it stays. Between jobs Megatron knows of none.
`destroy_model_parallel` would say so too, but would end groups that are needed again.
"""

from datetime import timedelta
from functools import cache
from typing import Any

import torch
from megatron.core import parallel_state
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import ProcessGroupGloo


def _known() -> dict[str, Any]:
    """What Megatron knows of its process groups."""
    state = vars(parallel_state).items()
    return {name: value for name, value in state if name.startswith("_") and not (name[1] == "_" or callable(value))}


class _OneDevice(ProcessGroupGloo):
    """All groups of a rank share a socket and a thread. Each would have its own, awake every 10 ms for good."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        options = ProcessGroupGloo._Options()
        options._devices, options._threads, options._timeout = [_device()], 1, timeout
        super().__init__(store, rank, size, options)


@cache
def _device() -> Any:
    return ProcessGroupGloo.create_device(interface="lo")


_NOTHING = _known()
_layouts: dict[Any, dict[str, Any]] = {}  # by their world and sizes


def enter_world(store: str, rank: int, size: int) -> None:
    """Meet the other ranks at the file `store`, unless this rank met them there for an earlier job."""
    if torch.distributed.is_initialized():
        return
    distributed_c10d.ProcessGroupGloo = _OneDevice  # type: ignore[misc]
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(hours=1),  # the limit of a job comes first, and says more
    )


def lay_out(**sizes: int) -> None:
    """Megatron's process groups of these sizes, whatever was laid out before."""
    forget_layout()
    layout = (torch.distributed.group.WORLD, *sorted(sizes.items()))  # groups end with their world
    if layout not in _layouts:
        parallel_state.initialize_model_parallel(**sizes)
        _layouts[layout] = _known()
    vars(parallel_state).update(_layouts[layout])


def forget_layout() -> None:
    """Megatron knows no process groups."""
    vars(parallel_state).update(_NOTHING)
