"""SkyRL's own functions, from a release or a checkout, and the shim's: the same hidden states, the same numbers."""

from typing import Any

import pytest
import torch
from downstream.checkouts import loaded
from harness import on_ranks, run_on_ranks
from harness.packing import Row
from harness.rounding import assert_agree, assert_close
from torch import Tensor

import mcore_unpatch.compat.skyrl as shim
from mcore_unpatch.compat.packing import split_packed_row, zigzag_split

UTILS = "skyrl.backends.skyrl_train.distributed.megatron.model_utils"
VOCAB, WIDTH, BATCH, LENGTH = 46, 12, 3, 16
# Real tokens of each row: left-padded, right-padded, whole.
MASK = torch.tensor([[0] * 5 + [1] * 11, [1] * 7 + [0] * 9, [1] * 16])
SUB_SEQUENCES = [[5, 4], [3], [6, 2, 4]]


def groups_of(tp: int, cp: int) -> tuple[Any, Any]:
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp, context_parallel_size=cp)
    return parallel_state.get_tensor_model_parallel_group(), parallel_state.get_context_parallel_group()


def tensors(tokens: tuple[int, int], tp_group: Any, dtypes: tuple[torch.dtype, torch.dtype]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(*tokens, WIDTH, generator=generator).to(dtypes[0])
    weight = torch.randn(VOCAB, WIDTH, generator=generator).to(dtypes[1])
    target = torch.randint(0, VOCAB, tokens, generator=generator)
    target[0, 3] = VOCAB + 5  # outside of the vocabulary: 0, and the gradient of -logsumexp
    shard = weight.chunk(tp_group.size())[tp_group.rank()].clone()
    return {"hidden": hidden, "lm_head_weight": shard, "target": target}


def run(function: Any, given: dict[str, Any], **options: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and the gradients of hidden states and weight for fixed weights of its values."""
    given = {**given, "hidden": given["hidden"].clone().requires_grad_()}
    given["lm_head_weight"] = given["lm_head_weight"].clone().requires_grad_()
    result = function(**given, **options)
    weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(5))
    torch.autograd.backward((result * weights).sum())
    return result.detach(), given["hidden"].grad, given["lm_head_weight"].grad


def assert_same(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...], dtype: torch.dtype) -> None:
    for name, mine, other in zip(("values", "hidden gradient", "weight gradient"), ours, theirs, strict=False):
        assert mine.shape == other.shape, name
        assert mine.dtype == other.dtype, name
        assert_agree({name: mine}, {name: other}, dtype)
        assert other.abs().max() > 0, name


def vocab_range(given: dict[str, Tensor], tp_group: Any) -> dict[str, int]:
    rows, rank = len(given["lm_head_weight"]), tp_group.rank()
    return {"vocab_start_index": rank * rows, "vocab_end_index": (rank + 1) * rows}


def _padded(checkout: str, tp: int, cp: int, temperature: float, dtypes: Any) -> None:
    tp_group, cp_group = groups_of(tp, cp)
    given: dict[str, Any] = tensors((BATCH, LENGTH), tp_group, dtypes)
    given["hidden"] = zigzag_split(given["hidden"], cp, cp_group.rank())
    given |= vocab_range(given, tp_group) | {"tp_group": tp_group, "cp_group": cp_group, "temperature": temperature}
    dtype = torch.bfloat16 if torch.bfloat16 in dtypes else torch.float32
    with loaded(checkout, "skyrl", UTILS) as utils:
        for chunk_size in (None, 3):
            theirs = run(utils.from_parallel_hidden_to_logprobs, given, chunk_size=chunk_size)
            ours = run(shim.from_parallel_hidden_to_logprobs, given, chunk_size=chunk_size)
            assert_same(ours, theirs, dtype)
        entropy = {"chunk_size": 4, "temperature": temperature, "tp_group": tp_group}
        pair = [
            (function(given["hidden"], given["lm_head_weight"], **entropy),)
            for function in (
                shim._fused_vocab_parallel_entropy_from_hidden,
                utils._fused_vocab_parallel_entropy_from_hidden,
            )
        ]
        assert_same(*pair, dtype)


F32, BF16 = torch.float32, torch.bfloat16
PADDED = [(1, 1, 1.0, (F32, F32)), (2, 1, 0.7, (F32, F32)), (1, 2, 1.0, (F32, F32)), (1, 1, 1.0, (BF16, F32))]
PADDED += [(2, 1, 1.0, (F32, BF16)), (2, 1, 1.0, (BF16, BF16))]


@pytest.mark.parametrize(("tp", "cp", "temperature", "dtypes"), PADDED)
def test_padded_batches(checkout: str, tp: int, cp: int, temperature: float, dtypes: Any) -> None:
    run_on_ranks("0.19.2", tp * cp, _padded, checkout, tp, cp, temperature, dtypes)


def _packed(checkout: str, tp: int, cp: int, layout: str) -> None:
    tp_group, cp_group = groups_of(tp, cp)
    lengths = [n for row in SUB_SEQUENCES for n in row] if layout == "sub-sequences" else MASK.sum(1).tolist()
    plan = Row(lengths, tp_size=tp, cp_size=cp, cp_rank=cp_group.rank())
    bounds = plan.bounds
    given: dict[str, Any] = tensors((1, sum(plan.padded)), tp_group, (F32, F32))
    given["hidden"] = split_packed_row(given["hidden"], bounds, cp_group)
    by = {"attention mask": {"attention_mask": MASK}, "sub-sequences": {"sub_seq_lengths": SUB_SEQUENCES}}
    common = {"cu_seqlens_padded": bounds, "cp_group": cp_group, "temperature": 1.3}
    unpacked = sum(plan.padded[3:]) + 1 if layout == "sub-sequences" else LENGTH  # the third row is the longest
    common |= {"unpacked_seqlen": unpacked, **by.get(layout, {})}
    call = {**given, **common, **vocab_range(given, tp_group), "group": tp_group}
    with loaded(checkout, "skyrl", UTILS) as utils:
        theirs = run(utils.from_parallel_hidden_to_logprobs_packed_sequences, call, chunk_size=5)
        ours = run(shim.from_parallel_hidden_to_logprobs_packed_sequences, call, chunk_size=5)
        assert_same(ours, theirs, F32)
        if layout == "left":
            return
        call = {**common, "tp_group": tp_group, "num_actions": 6, "attention_mask": torch.ones(3, unpacked)}
        if layout == "attention mask":
            call["attention_mask"] = MASK
        for loss_mask in (None, (torch.arange(18).view(3, 6) % 4 != 0).float()):
            pair = [
                function(given["hidden"], given["lm_head_weight"], loss_mask=loss_mask, **call)
                for function in (
                    shim.from_parallel_hidden_to_entropy_packed_sequences,
                    utils.from_parallel_hidden_to_entropy_packed_sequences,
                )
            ]
            for mine, other in zip(*pair, strict=True):
                assert_close(mine, other)
            assert pair[1][0] > 0.1


@pytest.mark.parametrize("layout", ["attention mask", "sub-sequences", "left"])
@pytest.mark.parametrize(("tp", "cp"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_packed_rows(checkout: str, tp: int, cp: int, layout: str) -> None:
    run_on_ranks("0.19.2", tp * cp, _packed, checkout, tp, cp, layout)


@on_ranks(1, release="0.19.2")
def test_tokens_are_counted_in_32_bits_whatever_the_default_dtype_is() -> None:
    """16 bits cannot count to 798, and frameworks set them as the default while they build models."""
    group, _ = groups_of(1, 1)
    given = tensors((1, 800), group, (F32, F32))
    call = (given["hidden"], given["lm_head_weight"], torch.tensor([0, 400, 800]), 400, 399, torch.ones(2, 400))
    means = [shim.from_parallel_hidden_to_entropy_packed_sequences(*call, None, None, group)]
    torch.set_default_dtype(torch.bfloat16)
    try:
        means.append(shim.from_parallel_hidden_to_entropy_packed_sequences(*call, None, None, group))
    finally:
        torch.set_default_dtype(torch.float32)
    for mine, other in zip(*means, strict=True):
        assert torch.equal(mine, other)
