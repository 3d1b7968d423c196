"""The process groups of a processor, which Megatron does not pass to the hook."""

from dataclasses import dataclass
from typing import Any

import torch.distributed
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.hook.errors import MissingContextError

_WAYS_TO_GROUPS = (
    "use attach(), which reads the model's groups, pass HookContext(groups=resolve_groups(model)), or initialise "
    "megatron.core.parallel_state."
)


@dataclass(frozen=True)
class ProcessGroups:
    """Tensor, context and pipeline parallel groups; None means a group of one rank."""

    tp: ProcessGroup | None = None
    cp: ProcessGroup | None = None
    pp: ProcessGroup | None = None


def resolve_groups(
    model: Any = None,
    *,
    tp: ProcessGroup | None = None,
    cp: ProcessGroup | None = None,
    pp: ProcessGroup | None = None,
) -> ProcessGroups:
    """Each group from the model's `pg_collection`, else from the argument, else from Megatron's `parallel_state`.

    Raises if an argument names other ranks than the model's own group.
    """
    own = getattr(model, "pg_collection", None)
    return ProcessGroups(
        tp=_one("tp", own, tp, "get_tensor_model_parallel_group"),
        cp=_one("cp", own, cp, "get_context_parallel_group"),
        pp=_one("pp", own, pp, "get_pipeline_model_parallel_group"),
    )


def check_tp_group(group: ProcessGroup | None, output_layer: Any, config: Any) -> None:
    """Raise unless the head is sharded over this group: with another one, log-probs would be silently wrong."""
    own = getattr(output_layer, "tp_group", None)
    expected = config.tensor_model_parallel_size if own is None else own.size()
    found = 1 if group is None else group.size()
    if found != expected:
        raise MissingContextError(
            f"the output layer is sharded over {expected} tensor-parallel ranks, but the processor's group has "
            f"{found}; {_WAYS_TO_GROUPS}"
        )
    if own is not None and group is not None and not _same_ranks(own, group):
        raise MissingContextError(
            f"the output layer is sharded over ranks {_ranks(own)}, but the processor's tensor-parallel group is "
            f"{_ranks(group)}; {_WAYS_TO_GROUPS}"
        )


def sequence_group(packed_seq_params: Any, groups: ProcessGroups, config: Any) -> ProcessGroup | None:
    """The ranks that share the sequences of a call. With dynamic context parallelism Megatron names them in every call.

    Raises for another group, with which labels would be silently wrong.
    """
    own: ProcessGroup | None = getattr(packed_seq_params, "cp_group", None)
    if own is not None or getattr(packed_seq_params, "local_cp_size", None) is not None:
        return own  # a size without a group is 1
    found = 1 if groups.cp is None else groups.cp.size()
    if found != config.context_parallel_size:
        raise MissingContextError(
            f"config.context_parallel_size is {config.context_parallel_size}, but the processor's context-parallel "
            f"group has {found}; {_WAYS_TO_GROUPS}"
        )
    return groups.cp


def _one(name: str, own: Any, given: ProcessGroup | None, getter: str) -> ProcessGroup | None:
    found: ProcessGroup | None = getattr(own, name, None)
    if found is not None:
        if given is not None and not _same_ranks(found, given):
            raise ValueError(
                f"{name}={_ranks(given)} was passed, but the model's pg_collection.{name} is {_ranks(found)}; "
                f"leave {name} out."
            )
        return found
    if given is not None:
        return given
    from megatron.core import parallel_state

    if not parallel_state.model_parallel_is_initialized():
        return None
    group: ProcessGroup | None = getattr(parallel_state, getter)(check_initialized=False)
    return group


def _ranks(group: ProcessGroup) -> list[int]:
    return torch.distributed.get_process_group_ranks(group)


def _same_ranks(left: ProcessGroup, right: ProcessGroup) -> bool:
    return left is right or _ranks(left) == _ranks(right)
