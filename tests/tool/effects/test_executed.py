"""veRL's own patches, which `tests/compat/upgrade` runs on real ranks: what is told of them is what they raised."""

import pytest
from downloads import unpacked
from rooms import names_of

from mcore_unpatch.effects.judge import Judge
from mcore_unpatch.megatron import packed
from mcore_unpatch.patches.find import Finder

# A release of veRL, the Megatron it was written for, a method, and whether each of the newer ones raised.
RAISED = (
    ("0.7.1", "0.16.1", "_postprocess", {"TypeError"}),
    ("0.7.1", "0.16.1", "_get_embeddings", {"TypeError", "ValueError"}),
    ("0.8.0", "0.17.1", "_postprocess", {"TypeError"}),
    ("0.8.0", "0.17.1", "_get_embeddings", {"TypeError", "ValueError"}),
    ("0.8.0", "0.17.1", "_checkpointed_forward", {"TypeError"}),
)
RAN = (("0.9.1", "0.17.1", "_postprocess"), ("0.9.1", "0.17.1", "_get_embeddings"))
NEWER = ("0.18.0", "0.18.2", "0.19.2")


def exceptions(verl: str, method: str, old: str, new: str) -> set[str]:
    """What is said to raise of a patch in veRL's `mtp_patch`."""
    file = unpacked("verl", verl) / "verl/models/mcore/mtp_patch.py"
    finder = Finder(names_of({"mtp_patch.py": file.read_text(encoding="utf-8")}))
    patches = [patch for patch in finder.all() if patch.target.endswith(f".{method}")]
    assert patches, "it is found"
    judge, release = Judge(finder.names, patches), packed.details().release
    every = (one for patch in patches for one in judge.step(patch, release(old), release(new)))
    return {one.exception for one in every if one.raises}


@pytest.mark.parametrize("new", NEWER)
@pytest.mark.parametrize(("verl", "old", "method", "raised"), RAISED)
def test_what_raised_is_told(verl: str, old: str, method: str, raised: set[str], new: str) -> None:
    assert exceptions(verl, method, old, new) >= raised


@pytest.mark.parametrize("new", NEWER)
@pytest.mark.parametrize(("verl", "old", "method"), RAN)
def test_what_ran_is_not_said_to_raise(verl: str, old: str, method: str, new: str) -> None:
    assert exceptions(verl, method, old, new) == set()
