"""One tile is the peak, whatever the number of tokens: measured at torch's allocator."""

import pytest
import torch
from fused_head.backend_checks import check_rows_are_gathered_one_tile_at_a_time
from fused_head.counters import peak_memory
from fused_head.oracle import Inputs, linear_logprob, make_inputs, materialised
from torch import Tensor

from mcore_unpatch.compat import vocab_pass

pytestmark = pytest.mark.slow
WIDTH, VOCAB, TILE = 16, 4_000, 400_000
PER_ROW = 160  # a few vectors of one number per row: statistics, outputs, their gradients
SLACK = 20_000


def extra(inputs: Inputs, mask: Tensor | None = None) -> int:
    """Bytes beyond inputs, outputs and gradients at the peak of a forward and a backward."""
    hidden, weight = inputs.hidden.requires_grad_(), inputs.weight.requires_grad_()
    with peak_memory() as memory:
        logprobs, entropy = linear_logprob(hidden, weight, inputs.labels, entropy=True, tile_bytes=TILE, mask=mask)
        assert isinstance(entropy, Tensor)
        (logprobs.sum() + entropy.sum()).backward()
    gradients = hidden.numel() * hidden.itemsize + weight.numel() * weight.itemsize
    return memory.peak - gradients


@pytest.mark.parametrize("tokens", [10, 100, 3_000])
def test_float32_takes_one_tile(tokens: int) -> None:
    assert extra(make_inputs(tokens, WIDTH, VOCAB)) <= TILE + tokens * PER_ROW + SLACK


@pytest.mark.parametrize("tokens", [100, 1_500])
@pytest.mark.parametrize("kept", [None, 2, 1], ids=["no mask", "half", "all"])
@pytest.mark.parametrize(("width", "vocab"), [(WIDTH, VOCAB), (256, 50)])
def test_low_precision_adds_one_float32_copy_of_the_hidden_gradient(
    tokens: int, kept: int | None, width: int, vocab: int
) -> None:
    """Of the computed rows. Where these are wide, a second copy would be seen, even one in 16 bits."""
    mask = None if kept is None else torch.arange(tokens) % kept == 0
    copy = tokens // (kept or 1) * width * 4
    limit = TILE + copy + tokens * PER_ROW + SLACK
    assert extra(make_inputs(tokens, width, vocab, torch.bfloat16), mask) <= limit


def test_one_copy_of_the_rows_at_a_time() -> None:
    check_rows_are_gathered_one_tile_at_a_time(make_inputs(600, WIDTH, 700), 60_000)


@pytest.mark.parametrize("tokens", [100, 3_000])
def test_top_k_and_no_grad_take_one_tile(tokens: int) -> None:
    inputs = make_inputs(tokens, WIDTH, VOCAB)
    with torch.no_grad(), peak_memory() as memory:
        vocab_pass(inputs.hidden, inputs.weight, inputs.labels, entropy=True, topk=4, tile_bytes=TILE)
    assert memory.peak <= TILE + tokens * (PER_ROW + 4 * 12) + SLACK


def test_main_grad_needs_no_other_buffer_of_the_weights_size() -> None:
    inputs = make_inputs(50, 64, 20_000)
    hidden, weight = inputs.hidden.requires_grad_(), torch.nn.Parameter(inputs.weight)
    weight.main_grad = torch.zeros_like(weight)  # type: ignore[attr-defined]
    with peak_memory() as memory:
        linear_logprob(hidden, weight, inputs.labels, fuse_main_grad=True, tile_bytes=TILE)[0].sum().backward()
    assert memory.peak <= TILE + SLACK < weight.numel() * 4


def test_the_measurement_sees_materialised_logits() -> None:
    """The other tests would fail if `[tokens, vocab]` were built: here it is built."""
    tokens = 1_000
    inputs = make_inputs(tokens, WIDTH, VOCAB)
    with peak_memory() as memory:
        materialised(inputs.hidden, inputs.weight, inputs.labels)
    assert memory.peak >= tokens * VOCAB * 4 > 20 * TILE
