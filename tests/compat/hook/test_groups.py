"""Process groups: the model's own first, then the argument, then Megatron's global state; and never a wrong one."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case, start_world
from megatron.core import parallel_state

from mcore_unpatch.compat import (
    HookContext,
    LogProbs,
    MissingContextError,
    ProcessGroups,
    call_with_processor,
    resolve_groups,
)


@on_ranks(2)
def test_the_model_comes_first_then_the_argument_then_the_global_state() -> None:
    rank = torch.distributed.get_rank()
    alone = [torch.distributed.new_group([r]) for r in range(2)][rank]
    both = torch.distributed.new_group([0, 1])
    assert resolve_groups() == ProcessGroups()
    assert resolve_groups(tp=alone).tp is alone
    start_world(Case(tp=2))
    state = parallel_state.get_tensor_model_parallel_group()
    assert resolve_groups().tp is state
    assert resolve_groups(tp=alone).tp is alone
    model: Any = SimpleNamespace(pg_collection=SimpleNamespace(tp=both))
    assert resolve_groups(model).tp is both
    assert resolve_groups(model, tp=state).tp is both
    with pytest.raises(ValueError, match=r"tp=\[\d\] was passed, but the model's pg_collection.tp is \[0, 1\]"):
        resolve_groups(model, tp=alone)


@on_ranks(Case(tp=2))
def test_a_group_that_does_not_match_the_head_is_refused(model: Any, inputs: Any) -> None:
    alone = [torch.distributed.new_group([r]) for r in range(2)][torch.distributed.get_rank()]
    with pytest.raises(ValueError, match=r"the model's pg_collection.tp is \[0, 1\]"):
        call_with_processor(model, LogProbs(), context={"groups": ProcessGroups(tp=alone)}, **inputs)
    # Megatron's own call, where nobody has looked at the model: the head itself is asked.
    hook = {"output_processor": LogProbs(), "output_processor_context": HookContext(groups=ProcessGroups(tp=alone))}
    with pytest.raises(
        MissingContextError, match="sharded over 2 tensor-parallel ranks, but the processor's group has 1"
    ):
        model(**inputs, **hook)
    assert model(**inputs, output_processor=LogProbs()).shape == (2, 16)
