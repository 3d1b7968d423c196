"""NeMo RL's own student log-probs at a teacher's top k, from its checkout, and the same at the hook."""

import pytest
import torch
from downstream.checkouts import NEMO_RL, checkouts, loaded
from harness import run_on_ranks
from harness.models import Case, batch_of, build_model, start_world
from harness.oracle import gradients_of
from harness.packing import Packer
from harness.rounding import assert_agree, assert_close
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat import DistillationLoss, TeacherTopK, call_with_processor, resolve_groups

K = 6
LENGTHS = (16, 9)


def _teacher(case: Case) -> tuple[Tensor, Tensor]:
    """Logits and ids `[b, s, k]`."""
    generator = torch.Generator().manual_seed(1)
    logits, ids = torch.randn(case.batch, case.sequence, case.vocab, generator=generator).topk(K)
    return logits, ids


def _mask(case: Case) -> Tensor:
    """`[b, s - 1]`: what NeMo RL keeps, which drops the last position of each row."""
    return (torch.arange(case.sequence - 1) < torch.tensor(LENGTHS)[:, None] - 1).float()


def _theirs(case: Case, checkout: str, zero: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """Their function on built logits, over tensor-parallel ranks, unpacked; and the forward KL of their loss."""
    start_world(case)
    model, batch = build_model(case), batch_of(case)
    group = parallel_state.get_tensor_model_parallel_group()
    logits, ids = _teacher(case)
    with loaded(checkout, "nemo_rl", "nemo_rl.distributed.model_utils") as utils:
        student, teacher, _ = utils.get_distillation_topk_logprobs_from_logits(
            model(batch["input_ids"], batch["position_ids"], None),
            logits,
            ids,
            zero_outside_topk=zero,
            calculate_entropy=False,
            vocab_parallel_rank=group.rank(),
            vocab_parallel_group=group,
        )
        losses = (teacher.exp() * (teacher - student)).sum(-1) * _mask(case)
        torch.autograd.backward(losses.square().sum())
    return losses.detach(), gradients_of(model)


def _ours(case: Case, zero: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """The same from hidden states, packed and context-parallel."""
    start_world(case)
    model = build_model(case)
    groups = resolve_groups(model)
    real = torch.arange(case.sequence) < torch.tensor(LENGTHS)[:, None]
    packer = Packer(real, tp_size=case.tp, cp_size=case.cp, cp_rank=parallel_state.get_context_parallel_rank())
    logits, ids = _teacher(case)
    row = call_with_processor(
        model,
        DistillationLoss(rest="zero" if zero else "renormalised"),
        packer.pack(batch_of(case)["input_ids"]),
        packer.position_ids,
        None,
        packed_seq_params=packer.packed_seq_params(),
        context={"teacher": TeacherTopK(packer.pack(ids), packer.pack(logits, fill=-torch.inf))},
    )
    losses = packer.unpack(row, cp_group=groups.cp)[:, :-1] * _mask(case)
    torch.autograd.backward(losses.square().sum())
    gradients = gradients_of(model)
    for gradient in gradients.values():
        torch.distributed.all_reduce(gradient, group=groups.cp)
    return losses.detach(), gradients


@pytest.mark.parametrize("zero", [True, False], ids=["zero outside", "renormalised"])
@pytest.mark.parametrize("checkout", checkouts(NEMO_RL))
def test_the_same_losses_packed_and_context_parallel(release: str, checkout: str, zero: bool) -> None:
    theirs = run_on_ranks(release, 2, _theirs, Case(tp=2), checkout, zero)
    for case in (Case(tp=2), Case(tp=2, cp=2)):
        for rank, (losses, gradients) in enumerate(run_on_ranks(release, case.ranks, _ours, case, zero)):
            expected, truth = theirs[rank % 2]
            assert_close(losses, expected)
            assert_agree(gradients, truth)
