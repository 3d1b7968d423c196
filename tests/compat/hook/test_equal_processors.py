"""Composed processors are equal if their parts are, in the same order."""

from mcore_unpatch.compat import Compose, LogProbs, LogProbsAndEntropy


def test_composed_processors_compare_by_their_parts() -> None:
    assert Compose(LogProbs(), LogProbsAndEntropy()) == Compose(LogProbs(), LogProbsAndEntropy())
    assert Compose(LogProbs()) != Compose(LogProbsAndEntropy())
    assert Compose(LogProbs()) != LogProbs()
    assert len({Compose(LogProbs()), Compose(LogProbs())}) == 1
