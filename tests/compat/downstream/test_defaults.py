"""Frameworks change torch's default device and dtype while they build models: nothing here depends on them."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat import LazyLogits, ProcessGroups, areal, linear_kl, linear_logprob, miles, roll, skyrl, slime
from mcore_unpatch.compat.fused_head.linear_logprob import vocab_pass
from mcore_unpatch.compat.logits.lazy import LMHead
from mcore_unpatch.compat.nemo_rl import from_parallel_hidden_states_to_logprobs
from mcore_unpatch.compat.packing.gather import next_token_labels, zigzag_split
from mcore_unpatch.compat.verl.batches import next_in_sequence, vision_tokens

GROUP, WORDS = ProcessGroup(0, 1), 30
DRAW = torch.Generator().manual_seed(1)
HIDDEN, WEIGHT, OTHER = (torch.randn(*shape, 8, generator=DRAW) for shape in ((2, 6), (WORDS,), (WORDS,)))
TOKENS = torch.randint(0, WORDS, (2, 6), generator=DRAW)
MASK = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
ROW, BOUNDS = (HIDDEN.view(1, 12, 8), TOKENS.view(1, 12)), torch.tensor([0, 6, 12])
EACH = torch.linspace(0.5, 2, 12, dtype=torch.float32).view(2, 6, 1)
NESTED = torch.nested.nested_tensor([torch.arange(3), torch.arange(2)], layout=torch.jagged)
ARGS = Namespace(
    allgather_cp=False, rollout_temperature=0.7, entropy_coef=0.1, qkv_format="thd", true_on_policy_mode=False
)
SAMPLES: dict[str, Any] = {
    "unconcat_tokens": list(TOKENS), "total_lengths": [6, 6], "response_lengths": [3, 2]
}  # fmt: skip


def lazy(dtype: torch.dtype = torch.float32) -> LazyLogits:
    """Made beforehand, as a model does."""
    return LazyLogits(HIDDEN.to(dtype), LMHead.of(WEIGHT.to(dtype), ProcessGroups()))


def packed(function: Any, *rest: Any, **options: Any) -> Any:
    return function(ROW[0], WEIGHT, ROW[1], BOUNDS, 6, 0, WORDS, GROUP, *rest, **options)


def parts(out: Any) -> list[Tensor]:
    """All tensors of a result, whatever holds them."""
    if isinstance(out, Tensor):
        return [out.values()] if out.is_nested else [out]
    if isinstance(out, LazyLogits):
        return [out.logits()]
    values = out.values() if hasattr(out, "values") else out if isinstance(out, list | tuple) else vars(out).values()
    return [part for value in values if value is not None for part in parts(value)]


Call = Callable[[LazyLogits], Any]
ANYWHERE: dict[str, Call] = {
    "veRL's next tokens": lambda _: [next_in_sequence(NESTED, None), next_in_sequence(NESTED, -100)],
    "skyrl, by a mask": lambda _: skyrl.places_of(BOUNDS, 6, 12, MASK, None),
    "skyrl, by lengths": lambda _: skyrl.places_of(BOUNDS, 6, 12, None, [[4, 3]]),
    "skyrl, left-aligned": lambda _: skyrl.places_of(BOUNDS, 6, 12, None, None),
    "entropy at every temperature": lambda z: (z / EACH).entropy(),
    "temperatures joined": lambda z: torch.cat([z / 2, z, z / EACH]),
    "a product": lambda z: z * 3,
    "a sum": lambda z: [z.sum(), z.mean(), (z / EACH).sum()],
    "new zeros": lambda z: z.new_zeros(3),
    "unpadded": lambda z: areal.unpad_logits(z[0], 1, BOUNDS[:2] // 2, BOUNDS[:2] // 3),
    "statistics": lambda z: [areal.get_vocab_min_max_logits(z), areal.get_vocab_mean_norm_logits(z)],
    "of real logits": lambda _: [areal.get_vocab_min_max_logits(EACH), areal.get_vocab_mean_norm_logits(EACH)],
    "given ids": lambda z: roll.op_compute_gather_by_teacher_indices(z, TOKENS),
    "labels of packed rows": lambda _: next_token_labels(TOKENS, fill=0),
    "zigzag": lambda _: zigzag_split(TOKENS[:, :4], 2, 1),
}  # fmt: skip
PASSES: dict[str, Call] = {
    "log-probs": lambda _: linear_logprob(HIDDEN, WEIGHT, TOKENS, mask=MASK, temperature=0.7, entropy=True),
    "all statistics": lambda _: vocab_pass(
        HIDDEN, WEIGHT, labels=TOKENS, entropy=True, topk=3, logit_stats=True, sum_pi_squared=True
    ),
    "divergence": lambda _: [linear_kl(HIDDEN, WEIGHT, HIDDEN, OTHER, kind=kind) for kind in ("forward", "jsd")],
    "areal": lambda z: areal.gather_logprobs_entropy(z, TOKENS, 0.7),
    "roll": lambda z: [roll.op_compute_topk_logits(z, 3), roll.vocab_parallel_cross_entropy(z, TOKENS)],
    "slime, one sample": lambda z: slime.calculate_log_probs_and_entropy(z[0], TOKENS[0], None, with_entropy=True),
    "nemo_rl": lambda _: from_parallel_hidden_states_to_logprobs(
        HIDDEN.transpose(0, 1), WEIGHT, None, TOKENS, 0, WORDS, GROUP
    ),
    "skyrl": lambda _: skyrl.from_parallel_hidden_to_logprobs(HIDDEN, WEIGHT, TOKENS, 0, WORDS, GROUP, num_actions=3),
    "skyrl, packed": lambda _: packed(
        skyrl.from_parallel_hidden_to_logprobs_packed_sequences, attention_mask=MASK, num_actions=3, entropy=True
    ),
    "skyrl, mean entropy": lambda _: skyrl.from_parallel_hidden_to_entropy_packed_sequences(
        ROW[0], WEIGHT, BOUNDS, 6, 3, MASK, None, None, GROUP
    ),
    "a vision model's tokens": lambda _: vision_tokens(NESTED, 9),
}
# Where a response stands is counted on the host, by tensors of the default device.
BY_RESPONSES: dict[str, Call] = {
    "slime": lambda z: slime.get_log_probs_and_entropy(z, args=ARGS, with_entropy=True, **SAMPLES)[1],
    "slime, top-p": lambda z: slime.get_log_probs_and_entropy(
        z,
        args=ARGS,
        with_entropy=True,
        top_p_token_ids=[[1, 2, 3], [4, 5]],
        top_p_token_offsets=[[0, 1, 2, 3], [0, 1, 2]],
        **SAMPLES,
    )[1],
    "miles": lambda z: miles.get_log_probs_and_entropy(z, args=ARGS, with_entropy=True, **SAMPLES),
}


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.fixture(autouse=True)
def _without_a_world(monkeypatch: pytest.MonkeyPatch) -> None:
    from megatron.core import parallel_state

    monkeypatch.setattr(parallel_state, "get_tensor_model_parallel_world_size", lambda: 1)
    monkeypatch.setattr(parallel_state, "get_context_parallel_world_size", lambda: 1)


def assert_the_same(found: Any, expected: Any) -> None:
    for mine, theirs in zip(parts(found), parts(expected), strict=True):
        assert (mine.dtype, mine.device) == (theirs.dtype, theirs.device)
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("call", (ANYWHERE | PASSES | BY_RESPONSES).values(), ids=ANYWHERE | PASSES | BY_RESPONSES)
def test_another_default_dtype(call: Call, dtype: torch.dtype) -> None:
    logits = lazy()
    expected = call(logits)
    with default_dtype(dtype):
        assert_the_same(call(logits), expected)


@pytest.mark.parametrize("call", (ANYWHERE | PASSES).values(), ids=ANYWHERE | PASSES)
def test_another_default_device(call: Call) -> None:
    logits = lazy()
    expected = call(logits)
    with torch.device("meta"):
        assert_the_same(call(logits), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_results_of_narrow_models_are_wide(dtype: torch.dtype) -> None:
    logits = lazy(dtype)
    found = [
        logits.new_zeros(2),
        logits.entropy(),
        logits.sum(),
        logits.logits(),
        logits.kl(logits / 2),
        *areal.get_vocab_min_max_logits(logits),
        *areal.get_vocab_min_max_logits(logits.logits().to(dtype)),
        *areal.get_vocab_mean_norm_logits(logits.logits().to(dtype)),
    ]
    assert {one.dtype for one in found} == {torch.float32}
