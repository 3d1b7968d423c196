"""Frameworks change torch's default device and dtype while they build models: nothing here depends on them."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat import linear_kl, linear_logprob, skyrl, vocab_pass
from mcore_unpatch.compat.nemo_rl import from_parallel_hidden_states_to_logprobs
from mcore_unpatch.compat.packing import next_token_labels, zigzag_split
from mcore_unpatch.compat.verl.batches import next_in_sequence, vision_tokens

GROUP, WORDS = ProcessGroup(0, 1), 30
DRAW = torch.Generator().manual_seed(1)
HIDDEN, WEIGHT, OTHER = (torch.randn(*shape, 8, generator=DRAW) for shape in ((2, 6), (WORDS,), (WORDS,)))
TOKENS = torch.randint(0, WORDS, (2, 6), generator=DRAW)
MASK = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
ROW, BOUNDS = (HIDDEN.view(1, 12, 8), TOKENS.view(1, 12)), torch.tensor([0, 6, 12])
EACH = torch.linspace(0.5, 2, 12, dtype=torch.float32).view(2, 6, 1)
NESTED = torch.nested.nested_tensor([torch.arange(3), torch.arange(2)], layout=torch.jagged)


def packed(function: Any, *rest: Any, **options: Any) -> Any:
    return function(ROW[0], WEIGHT, ROW[1], BOUNDS, 6, 0, WORDS, GROUP, *rest, **options)


def parts(out: Any) -> list[Tensor]:
    """All tensors of a result, whatever holds them."""
    if isinstance(out, Tensor):
        return [out.values()] if out.is_nested else [out]
    values = out.values() if hasattr(out, "values") else out if isinstance(out, list | tuple) else vars(out).values()
    return [part for value in values if value is not None for part in parts(value)]


Call = Callable[[], Any]
CALLS: dict[str, Call] = {
    "veRL's next tokens": lambda: [next_in_sequence(NESTED, None), next_in_sequence(NESTED, -100)],
    "skyrl, by a mask": lambda: skyrl.places_of(BOUNDS, 6, 12, MASK, None),
    "skyrl, by lengths": lambda: skyrl.places_of(BOUNDS, 6, 12, None, [[4, 3]]),
    "skyrl, left-aligned": lambda: skyrl.places_of(BOUNDS, 6, 12, None, None),
    "labels of packed rows": lambda: next_token_labels(TOKENS, fill=0),
    "zigzag": lambda: zigzag_split(TOKENS[:, :4], 2, 1),
    "log-probs": lambda: linear_logprob(HIDDEN, WEIGHT, TOKENS, mask=MASK, temperature=0.7, entropy=True),
    "all statistics": lambda: vocab_pass(HIDDEN, WEIGHT, labels=TOKENS, entropy=True, topk=3, sum_pi_squared=True),
    "divergence": lambda: [linear_kl(HIDDEN, WEIGHT, HIDDEN, OTHER, kind=kind) for kind in ("forward", "jsd")],
    "nemo_rl": lambda: from_parallel_hidden_states_to_logprobs(
        HIDDEN.transpose(0, 1), WEIGHT, None, TOKENS, 0, WORDS, GROUP
    ),
    "skyrl": lambda: skyrl.from_parallel_hidden_to_logprobs(HIDDEN, WEIGHT, TOKENS, 0, WORDS, GROUP),
    "skyrl, packed": lambda: packed(skyrl.from_parallel_hidden_to_logprobs_packed_sequences, attention_mask=MASK),
    "skyrl, mean entropy": lambda: skyrl.from_parallel_hidden_to_entropy_packed_sequences(
        ROW[0], WEIGHT, BOUNDS, 6, 3, MASK, None, None, GROUP
    ),
    "a vision model's tokens": lambda: vision_tokens(NESTED, 9),
}


@pytest.fixture(autouse=True)
def _without_a_world(monkeypatch: pytest.MonkeyPatch) -> None:
    from megatron.core import parallel_state

    monkeypatch.setattr(parallel_state, "get_tensor_model_parallel_world_size", lambda: 1)
    monkeypatch.setattr(parallel_state, "get_context_parallel_world_size", lambda: 1)


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float64, torch.device("meta")], ids=str)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_another_default_dtype_or_device(call: Call, default: Any) -> None:
    expected, dtype = call(), torch.get_default_dtype()
    with default if isinstance(default, torch.device) else nullcontext():
        torch.set_default_dtype(default if isinstance(default, torch.dtype) else dtype)
        try:
            found = call()
        finally:
            torch.set_default_dtype(dtype)
    for mine, theirs in zip(parts(found), parts(expected), strict=True):
        assert (mine.dtype, mine.device) == (theirs.dtype, theirs.device)
        assert torch.equal(mine, theirs)
