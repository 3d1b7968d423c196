"""The kernels compile for a Hopper GPU on a machine without one, within its shared memory.

The interpreter takes Python that the compiler does not, so running there is not enough.
"""

import itertools
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from mcore_unpatch.compat.ops.triton import grad_kernel, stats_kernel  # noqa: E402
from mcore_unpatch.compat.ops.triton.launch import kernel_options  # noqa: E402

SHARED_MEMORY = 227 * 1024
BLOCKS = {name: value for name, value in kernel_options(1.0).items() if name.startswith("block_")}
SIZES = ("rows", "columns", "width", "first_row", "first_column", "factors_stride", "parts_stride", "height", "lanes")
ONES = dict.fromkeys(SIZES, 1)  # Triton turns a size of one into a constant, which is another program


def compiled(kernel: Any, pointers: dict[str, str], constants: dict[str, Any], options: dict[str, Any]) -> Any:
    """Compile with these pointers; what is neither a pointer nor a size is a constant, None if not given."""
    sizes = {name: "i32" for name in SIZES if name not in constants}
    types = {name: (pointers | sizes).get(name, "constexpr") for name in kernel.arg_names}
    values = {
        (kernel.arg_names.index(name),): constants.get(name) for name, kind in types.items() if kind == "constexpr"
    }
    return triton.compile(ASTSource(kernel, types, values), target=GPUTarget("cuda", 90, 32), options=options)


def check(kernel: Any, pointers: dict[str, str], constants: dict[str, Any]) -> None:
    """A kernel that makes logits, with a scale that rounds nothing and with one that does."""
    for scale in (1.0, 0.7):
        options = {name: value for name, value in kernel_options(scale).items() if name not in BLOCKS}
        found = compiled(kernel, pointers, BLOCKS | constants, options)
        assert "wgmma" in found.asm["ptx"]
        assert found.metadata.shared <= SHARED_MEMORY
    # Both kernels must round `z * scale`: neither compiler, the one to PTX nor the one from PTX, may fuse it.
    assert "fma.rn" not in found.asm["ptx"]
    assert found.metadata.enable_fp_fusion is False


def test_only_a_scale_that_rounds_nothing_may_be_fused() -> None:
    fused = {scale: kernel_options(scale)["enable_fp_fusion"] for scale in (1.0, -1.0, 2.0, 0.25, 0.7, 1 / 1.3, 3.0)}
    assert [scale for scale, yes in fused.items() if yes] == [1.0, -1.0, 2.0, 0.25]
    assert not kernel_options(torch.ones(3, 1))["enable_fp_fusion"]


def operands(dtype: str) -> dict[str, str]:
    return {"x": f"tensordesc<{dtype}[128,64]>", "w": f"tensordesc<{dtype}[256,64]>"}


@pytest.mark.parametrize(("dtype", "everything"), list(itertools.product(["bf16", "fp16"], [True, False])))
def test_statistics(dtype: str, everything: bool) -> None:
    pointers = operands(dtype) | {"parts": "*fp32", "scale": "fp32"}
    if everything:
        pointers |= {"targets": "*i64", "target": "*fp32", "row_scale": "*fp32", "limit": "*i64"}
    check(stats_kernel._lane_stats, pointers, {"ragged": everything})
    if everything:
        check(stats_kernel._lane_stats, pointers, ONES | {"ragged": True})


@pytest.mark.parametrize(("dtype", "everything"), list(itertools.product(["bf16", "fp16"], [True, False])))
def test_gradient(dtype: str, everything: bool) -> None:
    pointers = operands(dtype) | {"out": f"tensordesc<{dtype}[128,128]>", "factors": "*fp32"}
    if everything:
        pointers |= {"targets": "*i64", "limit": "*i64"}
    check(grad_kernel._tile_grad, pointers, {"entropy": everything})
    if everything:
        check(grad_kernel._tile_grad, pointers, ONES | {"entropy": True})


def test_merging() -> None:
    pointers = dict.fromkeys(("parts", "peak", "total", "drift"), "*fp32")
    for sizes in ({}, ONES):
        compiled(stats_kernel._merge_lanes, pointers, sizes | {"block_rows": 32, "step": 32}, {})
