"""A value head in Megatron's combined 1F1B schedule, which calls no `forward`, and in plain forwards."""

from typing import Any

import torch
from downstream.overlap import build_moe_model, no_streams
from harness import on_ranks
from harness.models import Case, batch_of
from harness.oracle import gradients_of
from harness.rounding import assert_agree
from harness.training import scheduled
from torch import Tensor

from mcore_unpatch.compat import add_value_head


def _loss(values: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    weights = torch.linspace(-1, 1, values.numel()).view_as(values)
    return (weights * values).mean(), {"values": values.detach().clone()}


def _step(model: Any, calls: list[Any], overlap: bool) -> Any:
    model.config.overlap_moe_expert_parallel_comm = overlap

    def forward_step(data: Any, model: Any, return_schedule_plan: bool = False) -> Any:
        call = next(data)
        if return_schedule_plan:
            return model.build_schedule_plan(**call), _loss
        return model(**call), _loss

    seen = scheduled(Case(), model, forward_step, calls)
    return {f"values {i}": one["values"] for i, one in enumerate(seen)} | gradients_of(model)


@on_ranks(2)
def test_a_value_head_in_a_schedule_plan() -> None:
    case = Case()
    with no_streams():
        model = build_moe_model(case)
        add_value_head(model)
        batches = [batch_of(case, seed) for seed in range(3)]
        names = ("input_ids", "position_ids")
        calls = [{name: one[name] for name in names} | {"attention_mask": None} for one in batches]
        plain = _step(model, calls, overlap=False)
        assert_agree(_step(model, calls, overlap=True), plain)
    assert plain["output_layer.weight"].norm() > 1e-4
    assert plain["values 2"].shape == (2, 16, 1)
