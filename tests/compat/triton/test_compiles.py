"""The kernels compile for GPUs on a machine without one, within their shared memory.

The interpreter takes Python that the compiler does not, so running there is not enough.
"""

from typing import Any
from unittest import mock

import pytest
import torch

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from mcore_unpatch.compat.fused_head.triton import chosen_columns, grad_kernel, keep, launch, pair, stats_kernel  # noqa: E402
from mcore_unpatch.compat.fused_head.triton.launch import kernel_options  # noqa: E402

CPU = torch.device("cpu")
# What a program may have: Hopper with its TMA, then Ampere (A100), Ada (RTX 4090, L40) and Blackwell without.
SHARED_MEMORY = {90: 227 * 1024, 80: 163 * 1024, 89: 99 * 1024, 100: 227 * 1024}
SIZES = (
    "rows",
    "columns",
    "vocabulary",
    "width",
    "x_width",
    "y_width",
    "kept_columns",
    "first_row",
    "first_column",
    "height",
    "splits",
    "segment",
    "segments",
    "gather_count",
    "count",
    "topk",
    "stride",
)


def compiled(kernel: Any, pointers: dict[str, str], constants: dict[str, Any], options: Any, card: int = 90) -> Any:
    """Compile with these pointers; what is neither a pointer nor a size is a constant, None if not given."""
    names = {name for name in kernel.arg_names if name in SIZES or name.endswith("_stride")}
    sizes = {name: "i32" for name in names if name not in constants}
    types = {name: (pointers | sizes).get(name, "constexpr") for name in kernel.arg_names}
    values = {
        (kernel.arg_names.index(name),): constants.get(name) for name, kind in types.items() if kind == "constexpr"
    }
    return triton.compile(ASTSource(kernel, types, values), target=GPUTarget("cuda", card, 32), options=options)


def check(
    kernel: Any, pointers: dict[str, str], constants: dict[str, Any], card: int, has_logarithm: bool = False
) -> None:
    """A kernel that makes logits, with a scale that rounds nothing (on Hopper) and with one that does."""
    for scale in (1.0, 0.7) if card == 90 else (0.7,):
        with mock.patch.object(launch, "has_tma", return_value=card == 90):
            options = kernel_options(scale, CPU)
        fixed = {name: value for name, value in options.items() if name.startswith(("block_", "tma"))}
        options = {name: value for name, value in options.items() if name not in fixed}
        found = compiled(kernel, pointers, fixed | constants, options, card)
        assert card != 90 or "wgmma" in found.asm["ptx"]
        assert "mma" in found.asm["ptx"]
        assert found.metadata.shared <= SHARED_MEMORY[card]
    # Both kernels must round `z * scale`: neither compiler, the one to PTX nor the one from PTX, may fuse it.
    assert has_logarithm or "fma.rn" not in found.asm["ptx"]  # a logarithm is made of them
    assert found.metadata.enable_fp_fusion is False


def test_only_a_scale_that_rounds_nothing_may_be_fused() -> None:
    scales = (1.0, -1.0, 2.0, 0.25, 0.7, 1 / 1.3, 3.0)
    fused = {scale: kernel_options(scale, CPU)["enable_fp_fusion"] for scale in scales}
    assert [scale for scale, yes in fused.items() if yes] == [1.0, -1.0, 2.0, 0.25]
    assert not kernel_options(torch.ones(3, 1), CPU)["enable_fp_fusion"]


def operands(dtype: str, card: int, **more: str) -> dict[str, str]:
    """Operands read by the TMA on Hopper, by pointers elsewhere."""
    if card != 90:
        return {"x": f"*{dtype}", "w": f"*{dtype}"} | {name: f"*{kind}" for name, kind in more.items()}
    tma = {name: f"tensordesc<{kind}[128,128]>" for name, kind in more.items()}
    return {"x": f"tensordesc<{dtype}[128,64]>", "w": f"tensordesc<{dtype}[256,64]>"} | tma


PLAIN: dict[str, Any] = {"even_width": True, "scaled": False, "ragged": False, "squares": False, "list_size": 0}
FULL: dict[str, Any] = {"even_width": False, "scaled": False, "ragged": True, "squares": True, "list_size": 4}
CASES = [("bf16", 90), ("fp16", 90), ("bf16", 80), ("bf16", 89), ("bf16", 100)]


def statistics_pointers(dtype: str, card: int) -> dict[str, str]:
    return operands(dtype, card) | {"parts": "*fp32", "scale": "fp32", "targets": "*i64", "target": "*fp32"}


@pytest.mark.parametrize(("dtype", "card"), CASES)
def test_statistics(dtype: str, card: int) -> None:
    check(stats_kernel._split_stats, statistics_pointers(dtype, card), PLAIN, card)


@pytest.mark.parametrize("card", [90, 80])
def test_statistics_that_are_kept(card: int) -> None:
    kept = operands("bf16", card, kept="fp16") | {"running_max": "*fp32", "row_scale": "*fp32", "limit": "*i64"}
    check(stats_kernel._split_stats, statistics_pointers("bf16", card) | kept, PLAIN | {"ragged": True}, card)


@pytest.mark.parametrize("card", [90, 80])
def test_chosen_and_largest_logits(card: int) -> None:
    lists = dict.fromkeys(("gather_columns", "first_of_segment", "top_columns"), "*i32")
    lists |= {"gathered": "*fp32", "top_logits": "*fp32"}
    check(stats_kernel._split_stats, statistics_pointers("bf16", card) | lists, FULL, card)


@pytest.mark.parametrize(("dtype", "card"), CASES)
def test_gradient(dtype: str, card: int) -> None:
    pointers = operands(dtype, card, out=dtype) | {"factors": "*fp32"}
    check(grad_kernel._tile_grad, pointers, {"even_width": True, "entropy": False, "squares": False}, card)
    check(
        grad_kernel._tile_grad,
        pointers | {"limit": "*i64"},
        {"even_width": False, "entropy": True, "squares": True},
        card,
    )
    if card == 90:
        check(
            grad_kernel._tile_grad,
            pointers,
            {"even_width": True, "entropy": True, "squares": False, "rows": 1, "columns": 1},
            card,
        )


# The kinds differ in one expression, of which kind 2 has every part.
@pytest.mark.parametrize(
    ("card", "kind", "gradient"), [(90, 0, True), (90, 1, False), (90, 2, True), (80, 2, False), (80, 2, True)]
)
def test_two_heads(card: int, kind: int, gradient: bool) -> None:
    names = ("x", "w", "y", "v")
    pointers = dict.fromkeys(names, "tensordesc<bf16[128,64]>" if card == 90 else "*bf16") | {"factors": "*fp32"}
    pointers["out"] = "*fp32" if not gradient else "tensordesc<bf16[128,128]>" if card == 90 else "*bf16"
    constants = {"kind": kind, "beta": 0.5, "log_beta": -0.7, "log_rest": -0.7, "gradient": gradient}
    check(pair._pair, pointers, constants | {"even_width": True, "block_columns": 128}, card, has_logarithm=kind == 2)


def test_the_small_kernels() -> None:
    sums = dict.fromkeys(("parts", "row_max", "sum_exp", "sum_exp_z", "squares"), "*fp32")
    compiled(stats_kernel._merge_parts, sums, {"block_rows": 32, "step": 32}, {})
    kept = {"kept": "*fp16", "out": "*bf16", "running_max": "*fp32", "factors": "*fp32"}
    terms = {"entropy": True, "squares": True, "block_rows": 16, "block_columns": 256, "by_nvidia": True}
    compiled(keep._kept_to_grad, kept, terms, {})
    chosen = {
        "out": "*bf16",
        "targets": "*i64",
        "coefficients": "*fp32",
        "logprobs": "*fp32",
        "factors": "*fp32",
        "limit": "*i64",
    }
    compiled(chosen_columns._write_targets, chosen, {"block_rows": 32, "size": 64}, {})
