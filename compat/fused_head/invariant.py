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

from mcore_unpatch.compat.fused_head.problem import Problem, RowStats

Fold = Callable[[Problem, int | None], RowStats]
_TRIED = (64, 16, 4)
_found: dict[tuple[Any, ...], int] = {}


def fold_invariantly(problem: Problem, fold: Fold) -> RowStats:
    """`fold(problem)` in tiles of a number of rows that depends on nothing in the call but the kind of its product."""
    rows = problem.row_count
    size = _rows_of_a_tile(problem, fold)
    first = torch.zeros(-rows % size, dtype=torch.long, device=problem.hidden.device)
    index = torch.arange(rows, device=problem.hidden.device) if problem.rows is None else problem.rows
    filled: dict[str, Any] = {}
    if len(first) and rows:
        filled = {
            name: torch.cat([value, value[first]]) for name, value in (_per_row(problem) | {"rows": index}).items()
        }
    stats = fold(replace(problem, **filled), size)
    return replace(stats, **{f.name: _first_rows(f.name, getattr(stats, f.name), rows) for f in fields(stats)})


def _per_row(problem: Problem) -> dict[str, Any]:
    named = ((name, getattr(problem, name)) for name in ("targets", "gather_columns", "scale"))
    return {name: value for name, value in named if isinstance(value, Tensor)}


def _first_rows(name: str, value: Any, rows: int) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value[:, :rows] if name == "moments" else value[:rows]


def _rows_of_a_tile(problem: Problem, fold: Fold) -> int:
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
    scale = problem.scale if isinstance(problem.scale, float | int) else torch.full_like(problem.hidden[:1, :1], 0.7)
    if isinstance(scale, Tensor):
        scale = scale.to(torch.float32).expand(size, 1)
    trial = replace(
        problem, hidden=row.expand(size, -1).contiguous(), rows=None, targets=None, gather_columns=None, scale=scale,
        keep_mask=None, moments=False,
    )  # fmt: skip
    stats = fold(trial, size)
    values = [value for f in fields(stats) if isinstance(value := getattr(stats, f.name), Tensor)]
    return all(bool((value == value[:1]).all()) for value in values)
