"""Shares of context-parallel ranks and packed rows: labels stay in their sequence, gathers have the asked gradient."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness import run_on_ranks
from harness.models import Case, batch_of, build_model, start_world
from harness.oracle import gradients_of
from harness.packing import Packer
from harness.rounding import assert_agree, assert_close
from torch import Tensor

from mcore_unpatch.compat import LogProbs, attach, resolve_groups
from mcore_unpatch.compat.packing import Gradient, gather_sequence, next_token_labels, zigzag_split

LENGTHS = [16, 9, 3]


def _gradient_of_a_loss_on(every_rank_the_same: bool, gradient: Gradient) -> tuple[Tensor, Tensor]:
    """Gathered sequence, a loss on it: this rank's gradient, and the true one."""
    group = torch.distributed.group.WORLD
    assert group is not None
    whole = torch.randn(2, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    share = zigzag_split(whole.detach(), group.size(), group.rank()).requires_grad_()
    gathered = gather_sequence(share, group, gradient)
    assert torch.equal(gathered, whole)
    weight = torch.arange(16.0).view(2, 8)
    mine = weight if every_rank_the_same else weight * (group.rank() + 1)
    torch.autograd.backward((mine * gathered.square()).sum())
    everyone = 1 if every_rank_the_same else sum(range(1, group.size() + 1))
    torch.autograd.backward((everyone * weight * whole.square()).sum())
    assert share.grad is not None
    assert whole.grad is not None
    return share.grad, zigzag_split(whole.grad, group.size(), group.rank())


def test_gradients_are_neither_doubled_nor_lost(release: str) -> None:
    for same, gradient, factor in ((True, "own", 1), (False, "summed", 1), (True, "summed", 4)):
        for found, true in run_on_ranks(release, 4, _gradient_of_a_loss_on, same, gradient):
            assert_close(found, factor * true, sums=4)


def test_wrong_shares_are_named() -> None:
    with pytest.raises(ValueError, match="gradient: expected 'own' or 'summed', got 'twice'"):
        gather_sequence(torch.zeros(1), None, "twice")  # type: ignore[arg-type]
    two: Any = SimpleNamespace(size=lambda: 2)
    with pytest.raises(ValueError, match=r"zigzag share, two chunks of equal length, got \[1, 3\]"):
        gather_sequence(torch.zeros(1, 3), two)  # one position dropped: the order of the others would be lost
    params = Packer(torch.ones(1, 4)).packed_seq_params()
    with pytest.raises(ValueError, match=r"\[1, tokens\], got \[2, 4\]"):
        next_token_labels(torch.zeros(2, 4, dtype=torch.long), packed_seq_params=params)
    for packed, what, count in ((None, "row", 2), (params, "packed sequence", 1)):
        with pytest.raises(ValueError, match=rf"lengths: expected one per {what}, \[{count}\], got \[3\]"):
            tokens = torch.zeros(count, 4, dtype=torch.long)
            next_token_labels(tokens, packed_seq_params=packed, lengths=torch.tensor([3, 2, 1]))


def test_where_a_sequence_ends() -> None:
    """By lengths, by bounds without padding as Transformer Engine wants them, or at the end of what is padded."""
    tokens, real = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.arange(3) < torch.tensor([[3], [2]])
    packer = Packer(real, tp_size=4)
    row, params = packer.pack(tokens), packer.packed_seq_params()
    assert next_token_labels(row, packed_seq_params=params).tolist() == [[2, 3, 0, -100, 5, 0, 0, -100]]
    ends = [[2, 3, -100, -100, 5, -100, -100, -100]]
    assert next_token_labels(row, packed_seq_params=params, lengths=torch.tensor([3, 2])).tolist() == ends
    params.cu_seqlens_q = torch.tensor([0, 3, 5], dtype=torch.int32)
    assert next_token_labels(row, packed_seq_params=params).tolist() == ends
    assert next_token_labels(tokens, lengths=torch.tensor([3, 1]), fill=-1).tolist() == [[2, 3, -1], [-1, -1, -1]]


def train_on(case: Case, packed: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-probs per batch row, and gradients summed over context ranks, each of which has its share of the loss."""
    start_world(case)
    model = build_model(case)
    groups = resolve_groups(model)
    assert groups.cp is not None
    batch = batch_of(case)
    real = torch.arange(case.sequence) < torch.tensor(LENGTHS)[:, None]
    packer = Packer(real, tp_size=case.tp, cp_size=case.cp, cp_rank=groups.cp.rank())
    inputs: dict[str, Any] = {"input_ids": packer.pack(batch["input_ids"]), "attention_mask": None}
    inputs |= {"position_ids": packer.position_ids, "packed_seq_params": packer.packed_seq_params()}
    row = packed(model, inputs)
    torch.autograd.backward((row * packer.pack(torch.arange(1.0, 4.0)[:, None].expand(3, case.sequence))).sum())
    gradients = gradients_of(model)
    for gradient in gradients.values():
        torch.distributed.all_reduce(gradient, group=groups.cp)
    return packer.unpack(row.detach(), cp_group=groups.cp), gradients


def one_at_a_time(case: Case) -> tuple[Tensor, dict[str, Tensor]]:
    """The same without packing: each sequence alone through the default path, log-softmax in float64."""
    start_world(case)
    model = build_model(case).double()
    tokens = batch_of(case)["input_ids"]
    rows = torch.zeros(tokens.shape, dtype=torch.float64)
    for number, length in enumerate(LENGTHS):
        row = tokens[number : number + 1, :length]
        logits = model(input_ids=row, position_ids=torch.arange(length)[None], attention_mask=None)
        picked = logits[:, :-1].log_softmax(-1).gather(-1, row[:, 1:, None]).squeeze(-1)
        ((number + 1) * picked.sum()).backward()
        rows[number, : length - 1] = picked.detach()[0]
    return rows, gradients_of(model)


def _attached(case: Case) -> tuple[Tensor, dict[str, Tensor]]:
    def packed(model: Any, inputs: dict[str, Any]) -> Tensor:
        with attach(model, LogProbs(shift="next_token"), {"lengths": torch.tensor(LENGTHS)}):
            row: Tensor = model(**inputs)
        return row

    return train_on(case, packed)


@pytest.mark.parametrize("case", [Case(batch=3), Case(batch=3, cp=2), Case(batch=3, cp=4)], ids=str)
def test_packing_and_context_parallelism_change_nothing(release: str, case: Case) -> None:
    rows, gradients = run_on_ranks(release, 1, one_at_a_time, Case(batch=3))[0]
    for mine, mine_gradients in run_on_ranks(release, case.ranks, _attached, case):
        assert_close(mine, rows)
        assert_agree(mine_gradients, gradients)
