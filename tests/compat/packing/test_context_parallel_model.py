"""A packed batch through the real model: the same log-probs and gradients, however many ranks share the context."""

from typing import Any

import pytest
import torch
from harness import run_on_ranks
from harness.models import Case, batch_of, build_model, start_world
from harness.oracle import gradients_of
from harness.rounding import assert_agree, assert_close

from mcore_unpatch.compat import LogProbs, attach, mean_per_sequence, pack_padded, resolve_groups

LENGTHS = [16, 9, 3]


def _train_on(case: Case) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Log-probs per batch row, and gradients summed over context ranks, each of which computes the same loss."""
    start_world(case)
    model = build_model(case)
    groups = resolve_groups(model)
    assert groups.cp is not None
    batch = batch_of(case)
    real = torch.arange(case.sequence) < torch.tensor(LENGTHS)[:, None]
    packer = pack_padded(real, tp_size=case.tp, cp_size=case.cp, cp_rank=groups.cp.rank())
    cpu = torch.device("cpu")
    inputs: dict[str, Any] = {
        "input_ids": packer.pack(batch["input_ids"]),
        "position_ids": packer.layout.position_ids(cpu),
        "packed_seq_params": packer.packed_seq_params(cpu),
        "attention_mask": None,
    }
    with attach(model, LogProbs(shift="next_token"), {"lengths": packer.layout.real_lengths(cpu)}):
        row = model(**inputs)
    losses = mean_per_sequence(row, packer.layout, cp_group=groups.cp, gradient="own")
    torch.autograd.backward((losses * torch.tensor([1.0, -2.0, 3.0])).sum())
    gradients = gradients_of(model)
    for gradient in gradients.values():
        torch.distributed.all_reduce(gradient, group=groups.cp)
    return packer.unpack(row.detach(), cp_group=groups.cp), gradients


def _one_at_a_time(case: Case) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The same without packing: each sequence alone through the default path, log-softmax in float64."""
    start_world(case)
    model = build_model(case).double()
    tokens = batch_of(case)["input_ids"]
    rows = torch.zeros(tokens.shape, dtype=torch.float64)
    for number, (length, weight) in enumerate(zip(LENGTHS, [1.0, -2.0, 3.0], strict=True)):
        row = tokens[number : number + 1, :length]
        logits = model(input_ids=row, position_ids=torch.arange(length)[None], attention_mask=None)
        picked = logits[:, :-1].log_softmax(-1).gather(-1, row[:, 1:, None]).squeeze(-1)
        (weight * picked.sum() / length).backward()
        rows[number, : length - 1] = picked.detach()[0]
    return rows, gradients_of(model)


@pytest.mark.parametrize("case", [Case(batch=3), Case(batch=3, cp=2), Case(batch=3, cp=4)], ids=str)
def test_packing_and_context_parallelism_change_nothing(release: str, case: Case) -> None:
    rows, gradients = run_on_ranks(release, 1, _one_at_a_time, Case(batch=3))[0]
    for mine, mine_gradients in run_on_ranks(release, case.ranks, _train_on, case):
        assert_close(mine, rows)
        assert_agree(mine_gradients, gradients)
