"""What every backend owes its caller besides numbers: early hidden gradients, and no more copies than counted."""

import torch
from fused_head.counters import GatheredRows
from fused_head.oracle import Inputs, grad_of, linear_logprob, make_inputs, materialised
from harness.rounding import assert_close
from torch import Tensor

from mcore_unpatch.compat.fused_head.problem import Problem, RowGrads, WeightGradBuffer
from mcore_unpatch.compat.fused_head.torch_backend import TorchBackend


def check_the_hidden_gradient_comes_early(backend: TorchBackend, dtype: torch.dtype, tile_bytes: int) -> None:
    """It is given once and whole while the last columns of the weight's gradient are still to be multiplied out."""
    inputs = make_inputs(300, 16, 900, dtype)
    problem = Problem(
        hidden=inputs.hidden, weight=inputs.weight, chosen=inputs.labels[:, None], columns=900, tile_bytes=tile_bytes
    )
    stats, ones = backend.forward(problem), torch.ones(300)
    assert stats.chosen is not None
    logprobs = stats.chosen[:, 0] - stats.row_max - stats.sum_exp.log()
    grads = RowGrads(
        row_max=stats.row_max,
        log_sum=stats.sum_exp.log(),
        softmax_coefficient=-ones,
        entropy_coefficient=None,
        squares_coefficient=None,
        target_coefficients=ones[:, None],
        target_columns=inputs.labels[:, None],
        target_logprobs=logprobs[:, None],
    )
    buffer = torch.zeros_like(inputs.weight)
    given: list[tuple[Tensor, Tensor, Tensor]] = []
    backend.backward(
        problem,
        grads,
        lambda part: given.append((part, part.clone(), buffer.clone())),
        WeightGradBuffer(buffer, accumulate=False),
    )
    ((part, part_then, buffer_then),) = given
    unfinished = (buffer_then != buffer).any(1)
    assert unfinished[-1]
    assert not unfinished[0]  # there are several tiles of columns
    assert torch.equal(part, part_then)
    exact = inputs.in_float64()
    materialised(exact.hidden.requires_grad_(), exact.weight, inputs.labels)[0].sum().backward()
    assert_close(part, grad_of(exact.hidden), inputs.weight.dtype)


def check_rows_are_gathered_one_tile_at_a_time(inputs: Inputs, tile_bytes: int) -> None:
    """The rows of one tile are gone before those of the next are gathered, in the forward and in the backward."""
    hidden, weight = inputs.hidden.requires_grad_(), inputs.weight.requires_grad_()
    mask = torch.arange(len(inputs.labels)) > 0
    with GatheredRows() as rows:
        logprobs, _ = linear_logprob(hidden, weight, inputs.labels, mask=mask, tile_bytes=tile_bytes)
        forward = len(rows.copies)
        logprobs.sum().backward()
    assert len(rows.copies) > forward > 1
    assert rows.most_at_once == 1
