"""The shim of AReaL without a checkout: against log-softmax, and what is refused."""

from typing import Any

import pytest
import torch
from harness.rounding import assert_close

from mcore_unpatch.compat import LazyLogits, ProcessGroups, areal
from mcore_unpatch.compat.logits.lazy import LMHead


def _logits() -> LazyLogits:
    generator = torch.Generator().manual_seed(1)
    hidden, weight = torch.randn(9, 8, generator=generator), torch.randn(30, 8, generator=generator)
    return LazyLogits(hidden.requires_grad_(), LMHead.of(weight, ProcessGroups()))


def test_results_are_those_of_log_softmax() -> None:
    labels, real = torch.arange(9), _logits().logits().detach()
    log_p = (real / 0.7).log_softmax(-1)
    log_probs, entropy = areal.gather_logprobs_entropy(_logits(), labels, 0.7)
    low, high = areal.get_vocab_min_max_logits(_logits() / 1.0)
    assert log_probs.requires_grad
    assert not low.requires_grad
    pairs = [
        (log_probs, log_p[labels, labels]),
        (areal.gather_logprobs(_logits(), labels, 0.7), log_p[labels, labels]),
        (entropy, -(log_p.exp() * log_p).sum(-1)),
        (areal.gather_logprobs_entropy(_logits(), labels, 0.7, reuse_logits=True)[0], log_p[labels, labels]),
        (areal.get_vocab_mean_norm_logits(_logits())[0], real.mean(-1)),
        (areal.get_vocab_mean_norm_logits(_logits())[1], real.norm(dim=-1)),
        (areal.get_vocab_mean_norm_logits(real)[1], real.norm(dim=-1)),
        (areal.get_vocab_mean_norm_logits(real)[0], real.mean(-1)),
        (areal.get_vocab_min_max_logits(real)[0], real.amin(-1)),
        (areal.get_vocab_min_max_logits(real)[1], real.amax(-1)),
        (low, real.amin(-1)),
        (high, real.amax(-1)),
    ]
    for found, expected in pairs:
        assert_close(found.detach(), expected)


@pytest.mark.parametrize("of", [lambda z: z, lambda z: z.entropy()])
def test_padding_is_dropped_from_logits_and_from_results(of: Any) -> None:
    """Two sequences of 3 and 2 tokens, padded to 4 each, and one more row of padding."""
    found = areal.unpad_logits(of(_logits()), 1, torch.tensor([0, 4, 8]), torch.tensor([0, 3, 5]))
    kept = torch.tensor([0, 1, 2, 4, 5])
    if isinstance(found, LazyLogits):
        found, expected = found.logits(), _logits().logits()[kept]
    else:
        expected = _logits().entropy()[kept]
    assert_close(found.detach(), expected.detach())
    assert len(areal.unpad_logits(of(_logits()), 2)) == 7


@pytest.mark.parametrize("function", [areal.gather_logprobs, areal.gather_logprobs_entropy])
def test_real_logits_are_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="expected the LazyLogits"):
        function(_logits().logits(), torch.arange(9))


def test_without_a_temperature_it_is_one() -> None:
    labels = torch.arange(9)
    expected = areal.gather_logprobs(_logits(), labels, 1.0)
    assert torch.equal(areal.gather_logprobs(_logits(), labels), expected)
    assert torch.equal(areal.gather_logprobs_entropy(_logits(), labels)[0], expected)


def test_statistics_have_no_gradient_of_real_logits_either() -> None:
    real = _logits().logits()
    for function in (areal.get_vocab_min_max_logits, areal.get_vocab_mean_norm_logits):
        for given in (_logits(), real):
            assert [one.requires_grad for one in function(given)] == [False, False]
            assert [one.shape for one in function(given)] == [(9,), (9,)]


def test_nothing_is_dropped_without_padding() -> None:
    assert areal.unpad_logits(_logits(), 0).shape == (9, 30)
    assert areal.unpad_logits(_logits(), 1).shape == (8, 30)
    assert areal.unpad_logits(_logits(), 0, torch.tensor([0, 5]), None).shape == (9, 30)
    assert areal.unpad_logits(_logits(), 0, torch.tensor([0, 5]), torch.tensor([0, 2, 4])).shape == (4, 30)
