"""What the flag promises, held to an oracle of our own where no checkout of NeMo RL is at hand.

NeMo RL's patch multiplies the last hidden states with the output weight and takes the log-probs of the next tokens of
the row. It leaves out MTP, MuP's factor, and the borders of packed sequences. Written down by hand that is a twin of
the model without MTP layers, the plain output of its output layer, and a log-softmax in float64.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from downstream.nemo_rl_calls import CHUNK, FLAG, KEPT, SAME, call_of, values_and_gradients, with_the_flag
from harness import on_ranks
from harness.models import Case, build_model
from harness.oracle import gradients_of
from harness.rounding import assert_agree
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs


def twin_of(case: Case, model: Any, dtype: torch.dtype | None = None) -> Any:
    """The same weights without the layers of MTP, in another dtype if one is given."""
    twin = build_model(replace(case, mtp=0))
    missing = twin.load_state_dict(model.state_dict(), strict=False)
    assert not missing.missing_keys
    return twin if dtype is None else twin.to(dtype)


def by_hand(model: Any, call: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-probs of the next tokens `[b, s - 1]` and all gradients, from the logits that the output layer gives."""
    caught: list[Tensor] = []
    handle = model.output_layer.register_forward_hook(lambda layer, args, output: caught.append(output[0]))
    model.zero_grad()
    model(**{**call, "labels": None})
    handle.remove()
    [logits] = caught
    group = parallel_state.get_tensor_model_parallel_group()
    parts = [torch.empty_like(logits) for _ in range(group.size())]
    torch.distributed.all_gather(parts, logits.detach().contiguous(), group=group)
    whole = torch.cat(parts, -1).transpose(0, 1).double().requires_grad_()
    log_probs = whole.log_softmax(-1)[:, :-1].gather(-1, call["labels"][:, 1:, None]).squeeze(-1)
    weights = torch.randn(log_probs.shape, generator=torch.Generator().manual_seed(3))
    (gradient,) = torch.autograd.grad((log_probs * weights).sum(), whole)
    shard = gradient.chunk(group.size(), -1)[group.rank()].transpose(0, 1)
    torch.autograd.backward(logits, shard.to(logits.dtype))
    return log_probs.detach(), gradients_of(model)


@pytest.mark.parametrize("case", [*SAME, *KEPT], ids=str)
@on_ranks
def test_values_and_gradients_by_hand(case: Case) -> None:
    call = call_of(case)
    model = with_the_flag(case)
    untrained = {name: torch.zeros_like(p) for name, p in model.named_parameters() if name.startswith("mtp.")}
    (truth, gradients), (plain, plain_gradients) = (
        by_hand(twin_of(case, model, dtype), call) for dtype in (torch.float64, None)
    )
    kept = linear_ce_fusion_kwargs(model, chunk_size=CHUNK, numbers="nemo_rl")
    for asked in (FLAG, kept):
        before = model.config
        values, found = values_and_gradients(model, **call, **asked)
        assert model.config is before
        assert_agree({"log_probs": values}, {"log_probs": truth}, case.dtype, plain={"log_probs": plain})
        assert all(not found.pop(name).any() for name in untrained)
        assert_agree(found, gradients, case.dtype, plain=plain_gradients)


@pytest.mark.parametrize("case", [Case(mtp=1), Case(mtp=1, hybrid=True)], ids=str)
@on_ranks
def test_each_call_chooses_its_numbers(case: Case) -> None:
    """Megatron's numbers on the same model: its MTP layers learn, and the next call leaves them out again."""
    call, model = call_of(case), build_model(case)

    def learned(numbers: Any) -> bool:
        model.zero_grad()
        model(**call, **linear_ce_fusion_kwargs(model, numbers=numbers)).sum().backward()
        return any(g.any().item() for name, g in gradients_of(model).items() if name.startswith("mtp."))

    assert [learned(numbers) for numbers in ("nemo_rl", "megatron", "nemo_rl")] == [False, True, False]
