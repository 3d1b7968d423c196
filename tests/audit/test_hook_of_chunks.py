"""`hook_works` on chunks and stages of a few lines: every chunk is asked, and each is left as it was."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mcore_unpatch import audit
from mcore_unpatch.audit import hook
from mcore_unpatch.audit.origin import CodeOrigin
from mcore_unpatch.compat.hook import find


class Stage(nn.Module):
    """A part of a model: it has an output or not, is the first or not, and does something with the hook."""

    def __init__(self, does: str = "called", first: bool = True, output: bool = True, **config: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.inner = nn.Dropout().eval()
        self.does, self.pre_process, self.post_process = does, first, output
        self.config = SimpleNamespace(
            **{"tensor_model_parallel_size": 1, "sequence_parallel": False, "hidden_size": 5} | config
        )
        self.inputs: list[Any] = []
        self.seen: dict[str, Any] = {}

    def set_input_tensor(self, tensor: Tensor | None) -> None:
        self.inputs.append(tensor)

    def forward(self, input_ids: Tensor, position_ids: Tensor, attention_mask: Any, output_processor: Any) -> Any:
        self.seen = {"ids": input_ids, "positions": position_ids.tolist(), "mask": attention_mask}
        self.seen |= {"training": [one.training for one in self.modules()], "grad": torch.is_grad_enabled()}
        if self.does == "raises":
            raise ValueError("too short")
        return output_processor() if self.does == "called" else input_ids


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    def path_to(chunk: Stage) -> Any:
        return SimpleNamespace(model=chunk, has_output=chunk.post_process, wrappers=())

    monkeypatch.setattr(find, "find_language_model", path_to)


@pytest.mark.parametrize(
    ("chunks", "how", "asked"),
    [
        (["called"], "called", [True]),
        (["called", "called"], "called", [True, True]),
        (["called", "ignores"], "ignores", [True, True]),
        (["ignores", "called"], "ignores", [True, False]),
        (["raises", "called"], "failed", [True, False]),
        (["no output", "called"], "called", [False, True]),
        (["called", "no output"], "called", [True, False]),
        (["no output", "no output"], "no output", [False, False]),
    ],
)
def test_every_chunk_is_asked_until_one_loses_it(chunks: list[str], how: str, asked: list[bool]) -> None:
    made = [Stage(does, output=does != "no output") for does in chunks]
    outcome = audit.hook_works(made if made[1:] else made[0])
    assert (outcome.how, bool(outcome)) == (how, how == "called")
    assert [bool(stage.seen) for stage in made] == asked
    assert (outcome.said == "ValueError: too short") is (how == "failed")


@pytest.mark.parametrize("does", ["called", "raises"])
@pytest.mark.parametrize(
    ("config", "tokens", "rows"),
    [
        ({}, 2, 2),
        ({"tensor_model_parallel_size": 3}, 6, 6),
        ({"tensor_model_parallel_size": 3, "sequence_parallel": True}, 6, 2),
        ({"sequence_parallel": True}, 2, 2),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_what_a_stage_is_given_and_keeps(
    does: str, config: dict[str, Any], tokens: int, rows: int, first: bool
) -> None:
    stage = Stage(does, first, **config)
    audit.hook_works(stage)
    assert stage.seen["ids"].shape == (1, tokens)
    assert stage.seen["ids"].dtype == torch.long
    assert (stage.seen["positions"], stage.seen["mask"]) == ([list(range(tokens))], None)
    assert (stage.seen["training"], stage.seen["grad"]) == ([False, False], False)
    assert ([one.training for one in stage.modules()], torch.is_grad_enabled()) == ([True, False], True)
    assert not stage._forward_pre_hooks
    if first:
        assert stage.inputs == []
    else:
        before, after = stage.inputs
        assert (before.shape, before.dtype, after) == ((rows, 1, 5), torch.float64, None)


def test_other_inputs_take_the_place_of_ours() -> None:
    stage = Stage()
    audit.hook_works(stage, {"attention_mask": "mine"})
    assert (stage.seen["mask"], stage.seen["positions"]) == ("mine", [[0, 1]])


@pytest.mark.parametrize("foreign", [None, "forward", "_postprocess"])
def test_who_ignores_it(foreign: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that is not Megatron's, if there is one; else the forward that was called."""

    def origin_of(method: Any) -> CodeOrigin:
        return CodeOrigin(method.__name__, "", 0, "verl" if method.__name__ == foreign else "megatron.core")

    monkeypatch.setattr(hook, "origin_of", origin_of)
    monkeypatch.setattr(Stage, "_postprocess", lambda self: None, raising=False)
    Stage._postprocess.__name__ = "_postprocess"  # type: ignore[attr-defined]
    assert audit.hook_works(Stage("ignores")).at == (foreign or "forward")
