"""SkyRL's two steps, hidden states from the model and log-probs from them, against Megatron's default logits."""

import math
from typing import Any

import pytest
import torch
from harness import on_ranks, on_releases
from harness.faithful import TEMPERATURE, in_float64, lowest_dtype, weighted, with_a_default_path
from harness.models import Case, batch_of
from harness.oracle import Result, assert_no_worse, default_path, gradients_of
from harness.packing import Packer
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat import attach, call_with_processor
from mcore_unpatch.compat.packing import gather_sequence, split_packed_row
from mcore_unpatch.compat.skyrl import (
    call_model_with_fused_lm_head,
    from_parallel_hidden_to_logprobs,
    from_parallel_hidden_to_logprobs_packed_sequences,
    fused_lm_head_output_processor,
    fused_vocab_parallel_entropy_from_hidden,
    places_of,
)

ACTIONS = 6


class Batch:
    """A padded batch as SkyRL has it, and the call of the model it makes of it: padded, or packed for this rank."""

    def __init__(self, case: Case) -> None:
        self.case, batch = case, batch_of(case)
        self.sequences = batch["input_ids"]
        self.attention_mask = torch.ones_like(self.sequences)
        self.call: dict[str, Any] = {"input_ids": self.sequences, "position_ids": batch["position_ids"]}
        if case.packed:
            for row, padding in enumerate((5, 0, 3)[: case.batch]):  # left padding
                self.attention_mask[row, :padding] = 0
            cp_rank = parallel_state.get_context_parallel_rank()
            packer = Packer(self.attention_mask, tp_size=case.tp, cp_size=case.cp, cp_rank=cp_rank)
            self.params = packer.packed_seq_params()
            self.bounds = packer.bounds
            whole = Packer(self.attention_mask, tp_size=case.tp if case.cp == 1 else case.cp * math.lcm(case.tp, 2))
            self.targets = whole.pack(self.sequences)
            self.call = {"input_ids": packer.pack(self.sequences), "packed_seq_params": self.params}
            self.call["position_ids"] = packer.position_ids
        self.call["attention_mask"] = None

    def log_probs(self, hidden: Tensor, weight: Tensor, **options: Any) -> Any:
        """The second step, by the shim's functions."""
        group = parallel_state.get_tensor_model_parallel_group()
        rows = len(weight)
        options |= {"vocab_start_index": group.rank() * rows, "vocab_end_index": (group.rank() + 1) * rows}
        options |= {"chunk_size": 3, "temperature": TEMPERATURE}
        if not self.case.packed:
            found = from_parallel_hidden_to_logprobs(hidden, weight, self.sequences, tp_group=group, **options)
            return found[:, -ACTIONS:]
        found = from_parallel_hidden_to_logprobs_packed_sequences(
            hidden,
            weight,
            self.targets,
            self.bounds,
            self.case.sequence,
            group=group,
            cp_group=parallel_state.get_context_parallel_group(),
            attention_mask=self.attention_mask,
            **options,
        )
        return found[:, -ACTIONS:]

    def labels(self) -> Tensor:
        """What each position of this rank's call predicts."""
        if not self.case.packed:
            return self.sequences.roll(-1, 1)
        return split_packed_row(self.targets.roll(-1, 1), self.bounds, parallel_state.get_context_parallel_group())

    def window(self, share: Tensor) -> Tensor:
        """`[b, actions]` from per-token values of this rank's call."""
        if not self.case.packed:
            return share[:, -ACTIONS - 1 : -1]
        row = gather_sequence(share, parallel_state.get_context_parallel_group(), "own", self.bounds)
        token, follows = places_of(self.bounds, self.case.sequence, row.shape[1], self.attention_mask, None)
        return row[0, token].where(follows, 0)[:, -ACTIONS:]


def in_two_steps(batch: Batch, model: Any) -> Result:
    model.zero_grad()
    context: dict[str, Any] = {}
    hidden = call_model_with_fused_lm_head(model, **batch.call, output_processor_context=context)
    assert hidden.shape[-1] == batch.case.hidden
    weight, group = context["lm_head_weight"], parallel_state.get_tensor_model_parallel_group()
    log_probs = batch.log_probs(hidden, weight)
    entropy = batch.window(fused_vocab_parallel_entropy_from_hidden(hidden, weight, group, 3, TEMPERATURE))
    loss = weighted(log_probs, entropy)
    torch.autograd.backward(loss)
    return Result(log_probs.detach(), entropy.detach(), loss.detach(), gradients_of(model))


def from_logits(batch: Batch, model: Any) -> Result:
    def loss_of(log_probs: Tensor, entropy: Tensor) -> Tensor:
        return weighted(batch.window(log_probs), batch.window(entropy))

    result = default_path(model, batch.call, batch.labels(), TEMPERATURE, loss_of)
    result.log_probs, result.entropy = batch.window(result.log_probs), batch.window(result.entropy)
    return result


CASES = [
    Case(),
    Case(tp=2),
    Case(mtp=1),
    Case(hybrid=True),
    Case(packed=True, batch=3),
    Case(tp=2, sequence_parallel=True, tied=True),
    Case(dtype=torch.bfloat16, mup=True),
    Case(dtype=torch.bfloat16, head_dtype=torch.float32),
    Case(mtp=2, tied=True, mup=True),
    Case(hybrid=True, mtp=1, tp=2),
    Case(packed=True, batch=3, cp=2),
    Case(packed=True, batch=3, tp=2, sequence_parallel=True, mtp=1),
]


@pytest.mark.parametrize(("release", "case"), on_releases(CASES, older=5), ids=str)
@on_ranks
def test_values_and_gradients_are_those_of_the_default_path(case: Case, model: Any) -> None:
    batch = Batch(case)
    ours = in_two_steps(batch, model)
    truth = from_logits(batch, in_float64(case, model))
    assert ours.log_probs.shape == ours.entropy.shape == (case.batch, ACTIONS)
    assert_no_worse(ours, from_logits(batch, with_a_default_path(case, model)), truth, lowest_dtype(case))


@pytest.mark.parametrize("case", [Case(), Case(tp=2), Case(hybrid=True)], ids=str)
@on_ranks
def test_the_processor_is_one_as_any_other_and_short_hidden_states_are_refused(case: Case, model: Any) -> None:
    batch = Batch(case)
    expected: dict[str, Any] = {}
    hidden = call_model_with_fused_lm_head(model, **batch.call, output_processor_context=expected)
    context: dict[str, Any] = {}
    assert torch.equal(
        call_with_processor(model, fused_lm_head_output_processor, context=context, **batch.call), hidden
    )
    assert context["lm_head_weight"] is expected["lm_head_weight"]
    context = {}
    with attach(model, fused_lm_head_output_processor, context):
        assert torch.equal(model(**batch.call), hidden)
    assert context["lm_head_weight"] is expected["lm_head_weight"]
    assert torch.equal(call_with_processor(model, fused_lm_head_output_processor, **batch.call), hidden)
    with pytest.raises(ValueError, match=r"hidden: expected .* at least the 16 positions of target"):
        batch.log_probs(hidden[:, :-3], context["lm_head_weight"])
