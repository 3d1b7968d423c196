"""Rows whose results have the same bits whatever rows stand beside them, from products that do not promise that.

A matrix product adds up in an order that depends on the shapes, and may depend on a row's place among the others. So
all tiles get one and the same number of rows, the last filled up, and that number is one for which all places were seen
to give the same bits for the same row: tried once for each kind of product. One row at a time is always such a number.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.problem import Problem, RowStats, math_dtype

Fold = Callable[[Problem, int], RowStats]
_TRIED = (64, 16, 4)
_found: dict[tuple[Any, ...], int] = {}


def rows_of_a_tile(problem: Problem, fold: Fold) -> int:
    """Tried with this problem's weight and one row in every place; waits for the device, once for a kind of product."""
    weight, wanted = problem.weight, (problem.entropy, problem.squares, problem.topk)
    threads = torch.get_num_threads() if weight.device.type == "cpu" else 0
    scaled = isinstance(problem.scale, Tensor) or problem.scale != 1.0
    product = (weight.device, weight.dtype, weight.shape, problem.hidden.dtype)
    kind = (*product, problem.tile_bytes, *wanted, scaled, threads)
    if kind not in _found:
        _found[kind] = next((size for size in _TRIED if _same_everywhere(problem, fold, size)), 1)
    return _found[kind]


def _same_everywhere(problem: Problem, fold: Fold, size: int) -> bool:
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(1, problem.hidden.shape[1], generator=generator).to(problem.hidden)
    scale = problem.scale
    if isinstance(scale, Tensor):
        scale = torch.full((size, 1), 0.7, dtype=math_dtype(problem.weight), device=scale.device)
    trial = replace(
        problem, hidden=row.expand(size, -1).contiguous(), rows=None, targets=None, gather_columns=None, scale=scale,
        keep_mask=None, moments=False,
    )  # fmt: skip
    stats = fold(trial, size)
    values = [value for f in fields(stats) if isinstance(value := getattr(stats, f.name), Tensor)]
    return all(bool((value == value[:1]).all()) for value in values)
