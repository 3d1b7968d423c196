"""A CUDA build is no help to a test: it has what torch's CPU build has, in the test's own process and in its ranks."""

import pytest
import torch

from harness import run_on_ranks
from harness.cpu import LACKING


def _refused(names: tuple[str, ...] = LACKING) -> list[str]:
    said = []
    for name in names:
        with pytest.raises(RuntimeError, match="Tried to instantiate dummy base class") as caught:
            getattr(torch.cuda, name)()
        said.append(str(caught.value).split()[-1])
    return said


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU, which tests for one use in this process")
def test_in_this_process() -> None:
    assert _refused() == list(LACKING)


def test_on_the_ranks() -> None:
    assert run_on_ranks("0.19.2", 1, _refused) == [list(LACKING)]
