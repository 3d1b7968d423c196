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

from mcore_unpatch.compat.fused_head.triton import (  # noqa: E402
    backend,
    grad_kernel,
    kept_pair,
    launch,
    pair_kernels,
)
from mcore_unpatch.compat.fused_head.triton.launch import kernel_options  # noqa: E402

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")
# Hopper with its TMA, then Ampere (A100), Ada (RTX 4090, L40), Blackwell and AMD (MI300, MI350) without.
CARDS = {card: GPUTarget("cuda", card, 32) for card in (90, 80, 89, 100)}
CARDS |= {card: GPUTarget("hip", card, 64) for card in ("gfx942", "gfx950")}
# What a program may have of shared memory.
SHARED_MEMORY = {90: 227 << 10, 80: 163 << 10, 89: 99 << 10, 100: 227 << 10, "gfx942": 64 << 10, "gfx950": 160 << 10}
SIZES = (
    *("rows", "columns", "vocabulary", "width", "x_width", "y_width", "kept_columns", "first_row", "first_column"),
    *("height", "splits", "segment", "segments", "per_row", "count", "topk", "stride"),
)


def compiled(kernel: Any, pointers: dict[str, str], constants: dict[str, Any], options: Any, card: Any = 90) -> Any:
    """Compile with these pointers; what is neither a pointer nor a size is a constant, None if not given."""
    names = {name for name in kernel.arg_names if name in SIZES or name.endswith("_stride")}
    sizes = {name: "i32" for name in names if name not in constants}
    types = {name: (pointers | sizes).get(name, "constexpr") for name in kernel.arg_names}
    values = {
        (kernel.arg_names.index(name),): constants.get(name) for name, kind in types.items() if kind == "constexpr"
    }
    return triton.compile(ASTSource(kernel, types, values), target=CARDS[card], options=options)


def check(
    kernel: Any,
    pointers: dict[str, str],
    constants: dict[str, Any],
    card: Any,
    has_logarithm: bool = False,
    scales: tuple[float, ...] = (0.7,),
) -> None:
    """A kernel that makes logits, with a scale that rounds and, if asked for, with one that does not."""
    for scale in scales:
        with mock.patch.object(launch, "has_tma", return_value=card == 90):
            given = kernel_options(scale, CPU) | {"by_nvidia": isinstance(card, int)} | constants
        options = {name: given[name] for name in ("num_warps", "num_stages", "enable_fp_fusion")}
        found = compiled(kernel, pointers, given, options, card)
        assert found.metadata.shared <= SHARED_MEMORY[card]
    by_nvidia = isinstance(card, int)
    assembly = found.asm["ptx" if by_nvidia else "amdgcn"]
    assert {90: "wgmma", 100: "mma"}.get(card, "mma.sync" if by_nvidia else "v_mfma") in assembly
    # All kernels must round `z * scale`: neither compiler, the one to PTX nor the one from PTX, may fuse it.
    fused = ("fma.rn",) if by_nvidia else ("v_fma_f32", "v_fmac_f32", "v_pk_fma_f32")
    assert has_logarithm or not any(name in assembly for name in fused)  # a logarithm is made of them
    assert found.metadata.enable_fp_fusion is False


def test_only_a_scale_that_rounds_nothing_may_be_fused() -> None:
    scales = (1.0, -1.0, 2.0, 0.25, 0.7, 1 / 1.3, 3.0)
    fused = {scale: kernel_options(scale, CPU)["enable_fp_fusion"] for scale in scales}
    assert [scale for scale, yes in fused.items() if yes] == [1.0, -1.0, 2.0, 0.25]
    assert not kernel_options(torch.ones(3, 1), CPU)["enable_fp_fusion"]


def operands(dtype: str, card: Any, **more: str) -> dict[str, str]:
    """Operands read by the TMA on Hopper, by pointers elsewhere."""
    if card != 90:
        return {"x": f"*{dtype}", "w": f"*{dtype}"} | {name: f"*{kind}" for name, kind in more.items()}
    tma = {name: f"tensordesc<{kind}[128,128]>" for name, kind in more.items()}
    return {"x": f"tensordesc<{dtype}[128,64]>", "w": f"tensordesc<{dtype}[256,64]>"} | tma


PLAIN: dict[str, Any] = {"even_width": True, "scaled": False, "ragged": False, "squares": False, "list_size": 0}
FULL: dict[str, Any] = {"even_width": False, "scaled": False, "ragged": True, "squares": True, "list_size": 4}
BOTH = (1.0, 0.7)  # what differs is one option of the compiler: asked once of each kernel, on Hopper
CASES = [("bf16", 90), ("fp16", 90), ("bf16", 80), ("bf16", 89), ("bf16", 100), ("bf16", "gfx942")]


def statistics_pointers(dtype: str, card: Any) -> dict[str, str]:
    return operands(dtype, card) | {"parts": "*fp32", "scale": "fp32"}


@pytest.mark.parametrize(("dtype", "card"), CASES)
def test_statistics(dtype: str, card: Any) -> None:
    scales = BOTH if (dtype, card) == CASES[0] else BOTH[1:]
    check(backend._split_stats, statistics_pointers(dtype, card), PLAIN, card, scales=scales)


@pytest.mark.parametrize("card", [90, 80, "gfx950"])
def test_statistics_that_are_kept(card: Any) -> None:
    kept = operands("bf16", card, kept="i16") | {"running_max": "*fp32", "row_scale": "*fp32"}
    check(backend._split_stats, statistics_pointers("bf16", card) | kept, PLAIN | {"ragged": True}, card)


@pytest.mark.parametrize("card", [90, 80])
def test_largest_logits(card: int) -> None:
    lists = {"top_columns": "*i32", "top_logits": "*fp32"}
    check(backend._split_stats, statistics_pointers("bf16", card) | lists, FULL, card)


@pytest.mark.parametrize(("dtype", "card"), CASES)
def test_gradient(dtype: str, card: Any) -> None:
    pointers = operands(dtype, card, out=dtype) | {"factors": "*fp32"}
    scales = BOTH if (dtype, card) == CASES[0] else BOTH[1:]
    constants = {"even_width": False, "entropy": True, "squares": True}
    check(grad_kernel._tile_grad, pointers, constants, card, scales=scales)
    if dtype == "fp16":  # the same but for the type of the operands
        return
    check(grad_kernel._tile_grad, pointers, {"even_width": True, "entropy": False, "squares": False}, card)
    if card == 90:
        check(
            grad_kernel._tile_grad,
            pointers,
            {"even_width": True, "entropy": True, "squares": False, "rows": 1, "columns": 1},
            card,
        )


# The kinds differ in one expression, of which kind 2 has every part.
@pytest.mark.parametrize(("card", "kind"), [(90, 0), (90, 1), (90, 2), (89, 2), ("gfx942", 2)])
def test_two_heads(card: Any, kind: int) -> None:
    pointers = dict.fromkeys(("x", "w", "y", "v"), "tensordesc<bf16[128,64]>" if card == 90 else "*bf16")
    pointers |= {"factors": "*fp32", "limit": "*i64"}
    out = {"out": "tensordesc<bf16[128,128]>" if card == 90 else "*bf16"}
    constants = {"kind": kind, "beta": 0.5, "log_beta": -0.7, "log_rest": -0.7, "even_width": True}
    constants |= {"block_columns": 128, "num_warps": 8, "num_stages": pair_kernels._STAGES if card == 90 else 3}
    check(pair_kernels._pair_grad, pointers | out, constants, card, has_logarithm=kind == 2)
    sums = pointers | {"parts": "*fp32"}
    constants |= {"stats": kind != 2}
    check(pair_kernels._pair_sums, sums, constants, card, has_logarithm=kind == 2)
    if kind == 2:
        steps, apart = (f"tensordesc<{n}[128,128]>" if card == 90 else f"*{n}" for n in ("i16", "fp16"))
        kept = {"kept_steps": steps, "kept_apart": apart, "kept_maxima": "*fp32"}
        check(pair_kernels._pair_sums, sums | kept, constants | {"stats": True}, card, has_logarithm=kind == 2)


def test_the_small_kernels() -> None:
    sums = dict.fromkeys(("parts", "row_max", "sum_exp", "sum_exp_z", "squares"), "*fp32")
    compiled(backend._merge_parts, sums, {"block_rows": 32, "step": 32}, {})
    kept = {"kept": "*i16", "out": "*bf16", "running_max": "*fp32", "factors": "*fp32"}
    terms = {"entropy": True, "squares": True, "block_rows": 16, "block_columns": 256, "by_nvidia": True}
    compiled(grad_kernel._kept_to_grad, kept, terms, {})
    both = {"steps": "*i16", "apart": "*fp16", "maxima": "*fp32", "factors": "*fp32"}
    jsd = {"kind": 2, "beta": 0.5, "log_beta": -0.7, "log_rest": -0.7}
    terms = {"block_rows": 16, "block_columns": 128, "by_nvidia": True}
    compiled(kept_pair._kept_to_grad, both | {"out": "*bf16"}, jsd | terms, {})
    compiled(kept_pair._kept_sums, both | {"out": "*fp32"}, jsd | terms, {})
    chosen = dict.fromkeys(("coefficients", "logprobs", "factors"), "*fp32") | {"out": "*bf16", "targets": "*i64"}
    compiled(grad_kernel._write_targets, chosen, {"block_rows": 32, "size": 64}, {})


@pytest.mark.parametrize(("dtype", "card"), CASES)
def test_chosen_logits(dtype: str, card: Any) -> None:
    pointers = dict.fromkeys(("x", "w"), f"*{dtype}") | {"out": "*fp32", "chosen": "*i64", "row_scale": "*fp32"}
    scales = BOTH if (dtype, card) == CASES[0] else BOTH[1:]
    constants = {"even_width": True, "pairs": 64, "num_warps": 4}
    check(grad_kernel._chosen_logits, pointers, constants, card, scales=scales)
