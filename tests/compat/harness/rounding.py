"""How far two correct computations of the same numbers may be apart: every tolerance of the compat tests.

Machines differ in the order of a sum, in fused multiply-adds and in `exp`. So a tolerance follows from the epsilon of
the dtype; from the length of the sums, whose independent roundings come to at most `sqrt(n) / 5` epsilons (`sqrt(n)` is
five of these) and `OTHER` more for what is no sum; from the largest logit, to whose epsilon every addition rounds; from
storage in 16 bits, half an epsilon each time; and from twice the plain path's own error, measured where a test has a
float64 truth. Where it has none, both computations err, and the tolerance counts twice.

Distances are norms, relative to the truth's. A gradient that is zero on paper is left-over rounding of larger ones:
nothing is measured against less than `FLOOR` of the largest beside it. `test_rounding.py` shows that a gradient wrong
by a relative 1e-4 is red.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from harness.margins import note

Tensors = Mapping[str, Tensor]

# The tiny models of these tests: layers of width 16 to 64, attention over 16 to 48 tokens, sums over 48 words and all
# tokens, forth and back. From the tokens to a gradient that is a chain of less than a thousand additions.
MODEL = 1024
OTHER = 8
FLOOR = 1e-2


def tolerance(dtype: torch.dtype = torch.float32, sums: int = MODEL, peak: float = 1.0, stores: int = 1) -> float:
    """What rounding alone may do to a result in `dtype` through chains of `sums` additions, relative to its size."""
    if dtype.itemsize == 2:
        return torch.finfo(dtype).eps * (1 + stores) / 2 + tolerance(torch.float32, sums, peak)
    return torch.finfo(dtype).eps * (OTHER + math.sqrt(sums)) * peak


def distance(found: Tensor, truth: Tensor, floor: float = 0.0) -> float:
    """The norm of the difference, relative to the truth's (and to no less than `floor`)."""
    size = max(truth.double().norm().item(), floor)
    return (found.double() - truth.double()).norm().item() / (size or 1.0)


def assert_agree(
    found: Tensors,
    truth: Tensors,
    dtype: torch.dtype = torch.float32,
    sums: int = MODEL,
    plain: Tensors | None = None,
    peak: float = 1.0,
    stores: int = 1,
) -> None:
    """Every tensor of `found` is the one in `truth` but for rounding; `plain` is the plain path's, in `dtype` too."""
    assert found.keys() == truth.keys(), f"{sorted(found)} and {sorted(truth)}"
    floor = FLOOR * max((value.double().norm().item() for value in truth.values()), default=0.0)
    for name, true in truth.items():
        assert found[name].shape == true.shape, f"{name}: {list(found[name].shape)}, not {list(true.shape)}"
        error = distance(found[name], true, floor)
        own = tolerance(dtype, sums, peak, stores)
        if plain is not None:
            theirs = distance(plain[name], true, floor)
        else:
            theirs = 0.0 if true.dtype == torch.float64 != dtype else own / 2
        allowed = 2 * theirs + own
        note(error, allowed)
        assert error <= allowed, (
            f"{name}: error {error:.2e}, allowed {allowed:.2e}, the plain path's {theirs:.2e}, "
            f"size {true.double().norm().item():.2e}"
        )


def assert_close(
    found: Tensor, truth: Tensor, dtype: torch.dtype = torch.float32, sums: int = MODEL, stores: int = 1
) -> None:
    """One result is the other but for rounding."""
    assert_agree({"result": found}, {"result": truth}, dtype, sums, stores=stores)


def assert_same_losses(ours: Sequence[float], theirs: Sequence[float]) -> None:
    """The losses of a training, step by step: each step starts from the roundings of all steps before it."""
    found, truth = torch.tensor(ours), torch.tensor(theirs)
    assert_close(found, truth, sums=MODEL * len(truth))
