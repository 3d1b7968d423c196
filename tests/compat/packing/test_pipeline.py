"""Results of the last pipeline stage on every stage."""

from typing import Any

import torch
from harness import run_on_ranks

from mcore_unpatch.compat import Outputs, broadcast_from_last_stage

CPU = torch.device("cpu")


def _shared() -> tuple[int, Any]:
    group = torch.distributed.group.WORLD
    assert group is not None
    calls = []

    def compute() -> dict[str, Any]:
        calls.append(1)
        leaf = torch.ones(2, 3, requires_grad=True)
        return {
            "out": Outputs(log_probs=leaf * 2),
            "topk": leaf.detach().topk(1),
            "ids": (torch.arange(4), torch.ones(1, dtype=torch.bfloat16)),
            "steps": 3,
        }

    last = group.rank() == group.size() - 1
    result = broadcast_from_last_stage(compute() if last else None, group, CPU)
    assert result["out"].log_probs.requires_grad == last
    assert isinstance(result["topk"], torch.return_types.topk)
    assert torch.equal(result["topk"].indices, torch.zeros(2, 1, dtype=torch.long))
    return len(calls), {"log_probs": result["out"].log_probs.detach(), "ids": result["ids"], "steps": result["steps"]}


def test_only_the_last_stage_computes_and_all_have_the_result(release: str) -> None:
    answers = run_on_ranks(release, 3, _shared)
    assert [calls for calls, _ in answers] == [0, 0, 1]
    for _, result in answers:
        assert torch.equal(result["log_probs"], torch.full((2, 3), 2.0))
        assert torch.equal(result["ids"][0], torch.arange(4))
        assert result["ids"][1].dtype == torch.bfloat16
        assert result["steps"] == 3


def test_without_a_pipeline_the_result_is_returned_as_it_is() -> None:
    result = {"a": torch.ones(1)}
    assert broadcast_from_last_stage(result, None, CPU) is result
