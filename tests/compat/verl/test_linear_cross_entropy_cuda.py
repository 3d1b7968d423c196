"""veRL's kernel itself beside ours, on a GPU: `pytest tests/compat/verl/test_linear_cross_entropy_cuda.py`."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from downstream.verl import verl_kernel
from downstream.verl_formulas import call, formulas
from fused_head.oracle import make_inputs
from harness.gpu import needs_gpu, one_rank
from harness.rounding import assert_agree
from torch import Tensor

pytest.importorskip("triton")  # without it the import raises, and the old kernel stays

from mcore_unpatch.compat.verl.linear_cross_entropy import linear_cross_entropy

pytestmark = needs_gpu


def compare(found: dict[str, Tensor], theirs: dict[str, Tensor], truth: dict[str, Tensor], dtype: torch.dtype) -> None:
    """Ours is as near to float64 as theirs, but for rounding, and of the same kind."""
    for name, value in truth.items():
        assert found[name].dtype == theirs[name].dtype
        assert found[name].shape == theirs[name].shape
        of = dtype if name.endswith("grad") else torch.float32
        assert_agree({name: found[name]}, {name: value}, of, sums=8192, plain={name: theirs[name]})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [((300,), 256, 5000), ((4, 64), 512, 8192), ((1, 1000), 128, 3001)])
@pytest.mark.parametrize("keep_bytes", [0, 1 << 30])
def test_as_exact_as_the_kernel(
    dtype: torch.dtype, shape: tuple[tuple[int, ...], int, int], keep_bytes: int, verl_091: str
) -> None:
    made = make_inputs(*shape, dtype)
    hidden, weight, labels = made.hidden.cuda(), made.weight.cuda(), made.labels.cuda()
    with verl_kernel(verl_091) as kernel:
        theirs = call(kernel, hidden, weight, labels, 0.7, "none", None)
    found = call(lambda *args: linear_cross_entropy(*args, keep_bytes=keep_bytes), hidden, weight, labels, 0.7)
    compare(found, theirs, call(formulas, hidden.double(), weight.double(), labels, 0.7), dtype)


def test_labels_that_are_no_tokens_as_the_kernel_has_them_in_a_group(tmp_path: Path, verl_091: str) -> None:
    made = make_inputs(256, 256, 4096, torch.bfloat16)
    hidden, weight, labels = made.hidden.cuda(), made.weight.cuda(), made.labels.cuda()
    labels[:20] = -100
    with one_rank(tmp_path), verl_kernel(verl_091) as kernel:
        theirs = call(kernel, hidden, weight, labels, 1.0, "none", dist.group.WORLD)
        found = call(linear_cross_entropy, hidden, weight, labels, 1.0, "none", dist.group.WORLD)
    compare(found, theirs, call(formulas, hidden.double(), weight.double(), labels), torch.bfloat16)
