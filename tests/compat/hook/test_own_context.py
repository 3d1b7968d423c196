"""What a processor finds in its context: the groups of the model, whatever else the caller put there."""

from types import SimpleNamespace
from typing import Any

import pytest

from mcore_unpatch.compat import HookContext, ProcessGroups
from mcore_unpatch.compat.hook.call import check_tp_group, complete_context, sequence_group
from mcore_unpatch.compat.hook.state import MissingContextError
from mcore_unpatch.compat.skyrl import fused_lm_head_output_processor

TP, CP, PP = object(), object(), object()
MODEL = SimpleNamespace(pg_collection=SimpleNamespace(tp=TP, cp=CP, pp=PP))
GROUPS = ProcessGroups(tp=TP, cp=CP, pp=PP)  # type: ignore[arg-type]


@pytest.mark.parametrize("context", [None, {}, {"mine": 1}])
def test_a_mapping_of_ones_own_gets_the_groups(context: Any) -> None:
    found = complete_context(context, MODEL, fused_lm_head_output_processor)
    assert found == {**(context or {}), "groups": GROUPS}
    assert context is None or found is context  # results are put into the caller's own


def test_groups_that_are_there_stay() -> None:
    assert complete_context({"groups": "mine"}, MODEL, fused_lm_head_output_processor) == {"groups": "mine"}


def test_what_is_no_context_of_ours_is_left_alone() -> None:
    own = SimpleNamespace(temperature=2.0)
    assert complete_context(own, MODEL) is own


@pytest.mark.parametrize("context", [None, {"temperature": 2.0}, HookContext(temperature=2.0)])
def test_a_context_of_ours_gets_the_groups(context: Any) -> None:
    found = complete_context(context, MODEL)
    assert found.groups == GROUPS
    assert found.temperature == (None if context is None else 2.0)


class Group:
    """A group of some ranks."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def size(self) -> int:
        return self.ranks


def _of_sequences(params: Any, cp: Any, size: int) -> Any:
    return sequence_group(params, ProcessGroups(cp=cp), SimpleNamespace(context_parallel_size=size))


def test_the_ranks_that_share_the_sequences_of_a_call() -> None:
    two: Any = Group(2)
    assert _of_sequences(SimpleNamespace(cp_group=two), None, 4) is two
    assert _of_sequences(SimpleNamespace(local_cp_size=1), two, 2) is None
    assert _of_sequences(SimpleNamespace(cp_group=None, local_cp_size=None), two, 2) is two
    assert _of_sequences(None, None, 1) is None
    for cp, size in ((None, 2), (two, 1), (two, 4)):
        with pytest.raises(
            MissingContextError, match=f"context_parallel_size is {size}, but .* group has {1 if cp is None else 2}"
        ):
            _of_sequences(None, cp, size)


@pytest.mark.parametrize(("own", "sharded", "given"), [(None, 2, None), (None, 1, Group(2)), (Group(2), 1, None)])
def test_a_head_that_is_sharded_over_other_ranks_is_refused(own: Any, sharded: int, given: Any) -> None:
    layer, config = SimpleNamespace(tp_group=own), SimpleNamespace(tensor_model_parallel_size=sharded)
    with pytest.raises(
        MissingContextError, match=r"is sharded over \d tensor-parallel ranks, but the processor's group"
    ):
        check_tp_group(given, layer, config)


@pytest.mark.parametrize(("own", "sharded", "given"), [(None, 1, None), (None, 2, Group(2)), (Group(1), 2, None)])
def test_a_head_that_is_sharded_over_the_same_is_not(own: Any, sharded: int, given: Any) -> None:
    check_tp_group(given, SimpleNamespace(tp_group=own), SimpleNamespace(tensor_model_parallel_size=sharded))
