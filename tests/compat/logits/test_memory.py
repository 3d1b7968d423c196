"""What is asked of lazy logits takes tiles, and never what logits take: measured at torch's allocator."""

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fused_head.counters import peak_memory

from mcore_unpatch.compat import LazyLogits, ProcessGroups, areal, roll, slime
from mcore_unpatch.compat.fused_head.settings import HeadSettings
from mcore_unpatch.compat.logits.lazy import LMHead

pytestmark = pytest.mark.slow
TOKENS, VOCAB, WIDTH, TILE = 1_000, 2_000, 8, 200_000
LABELS = torch.arange(TOKENS) % VOCAB
ARGS = Namespace(rollout_temperature=0.9, entropy_coef=1.0, allgather_cp=False)


def _logits() -> LazyLogits:
    hidden, weight = torch.randn(1, TOKENS, WIDTH).requires_grad_(), torch.randn(VOCAB, WIDTH).requires_grad_()
    return LazyLogits(hidden, LMHead.of(weight, ProcessGroups(), HeadSettings(tile_bytes=TILE)))


def _slime(logits: LazyLogits) -> Any:
    quarter = [TOKENS // 4] * 4
    told = {"unconcat_tokens": list(LABELS.split(quarter)), "total_lengths": quarter, "response_lengths": [150] * 4}
    _, found = slime.get_log_probs_and_entropy(logits, args=ARGS, with_entropy=True, **told)
    return torch.cat(found["log_probs"]) + torch.cat(found["entropy"])


def _sampled(logits: LazyLogits) -> Any:
    return sum(part.log_probs(own).sum() for part, own in zip(logits[0].split(250), LABELS.split(250), strict=True))


ASKED: list[Callable[[LazyLogits], Any]] = [
    lambda z: z.log_probs(LABELS[None]),
    lambda z: (z / 0.7).compute(LABELS[None], entropy=True, sum_pi_squared=True).logprobs,
    lambda z: z.top_k(4).topk_logits,
    lambda z: z.log_probs_at(LABELS[None, :, None]),
    lambda z: z.kl(z.detach()),
    lambda z: z.sum(),
    lambda z: z.view(-1, VOCAB)[LABELS % 2 == 0].entropy(),
    lambda z: roll.vocab_parallel_logprobs(z, LABELS[None]) + roll.vocab_parallel_entropy(z),
    lambda z: areal.gather_logprobs_entropy(z.squeeze(0), LABELS)[0],
    _sampled,
    _slime,
]


@pytest.mark.parametrize("ask", ASKED)
def test_no_result_and_no_gradient_takes_what_logits_take(ask: Callable[[LazyLogits], Any]) -> None:
    logits = _logits()
    with peak_memory() as memory:
        torch.autograd.backward(ask(logits).sum())
    assert logits.hidden.grad is not None
    assert memory.peak < TOKENS * VOCAB * 4 / 8
    with peak_memory() as memory:
        logits.logits()
    assert memory.peak >= TOKENS * VOCAB * 4
