"""A pass over the vocabulary computes what its processor gives and no more: entropy needs no labels."""

from dataclasses import asdict

import pytest

from mcore_unpatch.compat import Entropy, LogProbs, LogProbsAndEntropy
from mcore_unpatch.compat.hook.head import Wants
from mcore_unpatch.compat.hook.processors import HeadProcessor


@pytest.mark.parametrize(
    ("processor", "names"),
    [(Entropy(), {"entropy"}), (LogProbs(), {"logprobs"}), (LogProbsAndEntropy(), {"logprobs", "entropy"})],
)
def test_no_more_is_computed_than_is_given(processor: HeadProcessor, names: set[str]) -> None:
    assert {name for name, on in asdict(processor.wants | Wants()).items() if on} == names
