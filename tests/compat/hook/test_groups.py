"""Process groups: the model's own, the argument's, Megatron's global ones, those of a call; never a wrong one."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case, batch_of, start_world
from harness.packing import Packer
from harness.rounding import assert_close
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat import (
    HookContext,
    LogProbs,
    MissingContextError,
    ProcessGroups,
    call_with_processor,
    resolve_groups,
)
from mcore_unpatch.compat.nemo_rl import NextTokenLogProbs

REAL = torch.arange(16) < torch.tensor([16, 10])[:, None]


def _successors(tokens: Tensor) -> Tensor:
    """The next token of each in the padded batch, -100 where none follows."""
    following = torch.cat([tokens[:, 1:], tokens.new_full((2, 1), -100)], 1)
    return following.where(torch.cat([REAL[:, 1:], torch.zeros(2, 1, dtype=torch.bool)], 1), -100)


@pytest.mark.parametrize(("case", "shared"), [(Case(dp=2), True), (Case(cp=2), False)], ids=["shared", "alone"])
@on_ranks
def test_a_call_may_name_its_own_ranks(case: Case, model: Any, shared: bool) -> None:
    """The hidden states of a real model, and a description of the row as dynamic context parallelism makes it anew.

    `shared`: a model without context parallelism, and a call whose sequences lie on two ranks. Otherwise the reverse.
    (Attention of these releases takes such groups with Transformer Engine alone; the hook is what is tested here.)
    """
    rank = torch.distributed.get_rank()
    tokens = batch_of(case, seed=0 if shared else rank)["input_ids"]
    packer = Packer(REAL, cp_size=2, cp_rank=rank) if shared else Packer(REAL)
    row, labels = packer.pack(tokens), packer.pack(_successors(tokens), fill=-100)
    seen: dict[str, Any] = {}
    call_with_processor(model, lambda **keywords: seen.update(keywords), row, torch.zeros_like(row), None)
    params = packer.packed_seq_params()
    params.local_cp_size = 2 if shared else 1
    params.cp_group = torch.distributed.group.WORLD if shared else None
    context = HookContext(lengths=torch.tensor(packer.lengths), groups=seen["context"].groups)
    found = LogProbs(shift="next_token")(**seen | {"packed_seq_params": params, "context": context})
    logits = (seen["hidden_states"] @ model.output_layer.weight.t()).transpose(0, 1).double()
    expected = logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1).where(labels >= 0, 0)
    assert_close(found, expected)
    if not shared:  # NeMo RL's shim gives whole rows, and here each rank has one of its own
        context = HookContext(groups=seen["context"].groups, labels=row)
        whole = NextTokenLogProbs()(**seen | {"packed_seq_params": params, "context": context})
        assert_close(whole.where(labels[:, :-1] >= 0, 0), expected[:, :-1])


@on_ranks(Case(cp=2))
def test_a_group_that_does_not_split_the_sequence_is_refused(model: Any) -> None:
    tokens = torch.zeros(2, 8, dtype=torch.long)
    hook = {
        "output_processor": LogProbs(shift="next_token"),
        "output_processor_context": HookContext(groups=ProcessGroups()),
    }
    with pytest.raises(
        MissingContextError, match="context_parallel_size is 2, but the processor's context-parallel group has 1"
    ):
        model(tokens, tokens, None, **hook)
    assert model(tokens, tokens, None, output_processor=LogProbs(shift="next_token")).shape == (2, 8)


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
        MissingContextError, match=r"sharded over ranks \[0, 1\], but the processor's .* group is \[\d\]"
    ):
        model(**inputs, **hook)
    assert model(**inputs, output_processor=LogProbs()).shape == (2, 16)
