"""How far two correct computations of the same numbers may be apart: every tolerance of the compat tests.

One operation errs by at most half an epsilon of its result. Machines, libraries and tile sizes differ in the order of a
sum, in fused multiply-adds and in `exp`, and each of them is right. So a tolerance follows from

* the epsilon of the dtype;
* the length of the sums. The roundings of n additions are independent and uniform within half an epsilon of the partial
  sums, so their error has a standard deviation of `sqrt(n) / 6` epsilons of the sum when all terms have one sign, and
  about `sqrt(n) / 5` of it when signs are random. `sqrt(n)` is five of these or more. `OTHER` more are for what is no
  sum: exp, log, a temperature, a scale;
* the size of the largest logit. Every addition of its sum rounds to an epsilon of the logit, not of its distance to the
  others, and `exp` makes of an absolute error a relative one of the probability;
* storage in 16 bits. Sums are float32 then; what is stored is rounded once in the backward's tile and once in the
  result: two halves of the 16-bit epsilon. A gradient to which several micro-batches are added in 16 bits is stored
  `stores` times, and each time is half an epsilon more;
* the error of the plain path, where a test has a float64 truth. Cancellation and large logits amplify roundings. By how
  much depends on the numbers alone, so the plain path measures it, on the same machine. Twice its error is allowed on
  top. Where a test has neither, two computations are compared that both err, and the tolerance counts twice.

Distances are norms, relative to the truth's own. A gradient that is zero on paper (a bias that softmax does not see) is
left-over rounding of larger ones: nothing is measured against less than `FLOOR` of the largest gradient beside it.

`test_rounding.py` shows that a gradient wrong by a relative 1e-4 is red, in the operator and in whole models.
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
    """What rounding alone may do to a result in `dtype` through chains of `sums` additions, relative to its size.

    `peak` is the largest logit, where that is large; `stores` counts the times the result is stored.
    """
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
