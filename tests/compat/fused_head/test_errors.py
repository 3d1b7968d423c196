"""Wrong arguments: the error names the argument, what was expected and what came."""

import re
from inspect import signature
from typing import Any

import pytest
import torch
from fused_head.oracle import linear_logprob
from torch.distributed import ProcessGroup

from mcore_unpatch import compat
from mcore_unpatch.compat import vocab_pass

IDS = torch.zeros(2, 3, dtype=torch.int64)
HEAD = torch.zeros(20, 8)
NAN = torch.tensor(float("nan"))
ALL_SHARDS = "the number of weight rows on all ranks of tp_group"

FLOATS = "one of bfloat16, float16, float32, float64"


def call(**changes: Any) -> Any:
    arguments: dict[str, Any] = {"hidden": torch.zeros(2, 3, 8), "weight": HEAD, "labels": IDS} | changes
    function = vocab_pass if "topk" in changes else linear_logprob
    return function(arguments.pop("hidden"), arguments.pop("weight"), arguments.pop("labels"), **arguments)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"hidden": [[1.0]]}, TypeError, "hidden: expected a tensor, got list"),
        (
            {"hidden": torch.zeros(2, 3, 9)},
            ValueError,
            "hidden: expected shape [..., 8] to match weight, got [2, 3, 9]",
        ),
        ({"hidden": torch.zeros(2, 3, 8, dtype=torch.int64)}, TypeError, f"hidden: expected {FLOATS}, got torch.int64"),
        ({"hidden": torch.zeros(())}, ValueError, "hidden: expected shape [..., 8] to match weight, got []"),
        ({"weight": torch.zeros(20)}, ValueError, "weight: expected shape [vocab / tp, h], got [20]"),
        ({"weight": HEAD.long()}, TypeError, f"weight: expected {FLOATS}, got torch.int64"),
        (
            {"weight": HEAD.to(torch.float8_e4m3fn)},
            TypeError,
            f"weight: expected {FLOATS}, got torch.float8_e4m3fn; multiply by its scale in bfloat16 and pass that",
        ),
        (
            {"hidden": torch.zeros(2, 3, 8, dtype=torch.float8_e5m2)},
            TypeError,
            f"hidden: expected {FLOATS}, got torch.float8_e5m2; multiply by its scale in bfloat16 and pass that",
        ),
        ({"labels": IDS.t()}, ValueError, "labels: expected shape [2, 3] to match hidden without h, got [3, 2]"),
        ({"labels": IDS.float()}, TypeError, "labels: expected an integer dtype (token ids), got torch.float32"),
        ({"labels": IDS.bool()}, TypeError, "labels: expected an integer dtype (token ids), got torch.bool"),
        ({"labels": None}, TypeError, "labels: expected a tensor, got None"),
        ({"mask": torch.zeros(6)}, ValueError, "mask: expected shape [2, 3] to match hidden without h, got [6]"),
        ({"mask": [1, 0]}, TypeError, "mask: expected a tensor, got list"),
        ({"labels": IDS.to("meta")}, ValueError, "labels: expected device cpu to match hidden, got meta"),
        ({"weight": HEAD.to("meta")}, ValueError, "weight: expected device cpu to match hidden, got meta"),
        ({"temperature": 0.0}, ValueError, "temperature: expected a finite number above 0, got 0.0"),
        ({"temperature": float("nan")}, ValueError, "temperature: expected a finite number above 0, got nan"),
        ({"temperature": "1"}, TypeError, "temperature: expected a number, got str"),
        ({"temperature": torch.ones(3)}, ValueError, "temperature: expected a scalar or shape [2, 3], got [3]"),
        ({"temperature": IDS}, TypeError, "temperature: expected a floating-point dtype, got torch.int64"),
        (
            {"temperature": torch.ones(2, 3, requires_grad=True)},
            ValueError,
            "temperature: expected a tensor without requires_grad",
        ),
        ({"temperature": IDS.float()}, ValueError, "temperature: expected finite numbers above 0, got 0.0"),
        ({"temperature": NAN}, ValueError, "temperature: expected finite numbers above 0, got nan"),
        ({"logit_scale": float("nan")}, ValueError, "logit_scale: expected a finite number, got nan"),
        ({"vocab_size": 21}, ValueError, f"vocab_size: expected at most 20, {ALL_SHARDS}, got 21"),
        ({"vocab_size": 0}, ValueError, "vocab_size: expected at least 1, got 0"),
        ({"vocab_size": 8.0}, TypeError, "vocab_size: expected an integer, got float"),
        ({"topk": 21}, ValueError, f"topk: expected at most 20, {ALL_SHARDS}, got 21"),
        ({"topk": 9, "vocab_size": 8}, ValueError, "topk: expected at most vocab_size = 8, got 9"),
        ({"topk": -1}, ValueError, "topk: expected at least 0, got -1"),
        (
            {"max_rows": 1, "ignore_index": None},
            ValueError,
            "max_rows: expected None, because neither a mask nor labels with an ignore_index leave rows out, got 1",
        ),
        ({"mask": IDS, "max_rows": 7}, ValueError, "max_rows: expected at least 0 and at most 6, got 7"),
        ({"max_rows": 7}, ValueError, "max_rows: expected at least 0 and at most 6, got 7"),
        ({"keep_bytes": "auto"}, TypeError, "keep_bytes: expected an integer, got str"),
        ({"keep_bytes": None}, TypeError, "keep_bytes: expected an integer, got None"),
        ({"keep_bytes": -1}, ValueError, "keep_bytes: expected at least 0, got -1"),
        ({"tile_bytes": 0}, ValueError, "tile_bytes: expected at least 1, got 0"),
        ({"tile_bytes": 1.5}, TypeError, "tile_bytes: expected an integer, got float"),
        ({"tile_bytes": 50}, ValueError, "for these tensors (one cell of the logits), got 50"),
        ({"backend": "cuda"}, ValueError, "backend: expected 'auto', 'torch' or 'triton', got 'cuda'"),
        ({"ignore_index": 1.0}, TypeError, "ignore_index: expected an integer, got float"),
        ({"out_of_vocab_grad": "none"}, ValueError, "out_of_vocab_grad: expected 'zero' or 'legacy', got 'none'"),
        ({"tp_group": 2}, TypeError, "tp_group: expected a process group this rank belongs to, or None, got 2"),
        ({"tp_group": ProcessGroup(-1, 2)}, TypeError, "tp_group: expected a process group this rank belongs to"),
    ],
)
def test_wrong_arguments(changes: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        call(**changes)


def test_an_argument_that_is_not_known_is_named_and_the_known_ones_are_shown() -> None:
    with pytest.raises(TypeError, match=r"linear_logprob\(\) got an unexpected keyword argument 'topk'"):
        compat.linear_logprob(torch.zeros(2, 3, 8), HEAD, IDS, topk=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"options: expected LogprobOptions\(...\), got dict"):
        compat.linear_logprob(torch.zeros(2, 3, 8), HEAD, IDS, options={"backend": "torch"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'temprature'"):
        vocab_pass(torch.zeros(2, 3, 8), HEAD, temprature=1.0)  # type: ignore[call-arg]
    assert list(signature(compat.linear_logprob).parameters)[:4] == ["hidden", "weight", "labels", "temperature"]
    assert len(signature(compat.linear_logprob).parameters) <= 11


def test_right_arguments() -> None:
    call()
    call(labels=IDS.int(), temperature=2, vocab_size=20, mask=torch.ones(2, 3))


def test_the_least_tile_is_told_and_works() -> None:
    with pytest.raises(ValueError, match="tile_bytes: expected at least") as caught:
        call(tile_bytes=1)
    least = int(re.findall(r"at least (\d+)", str(caught.value))[0])
    call(tile_bytes=least)
    with pytest.raises(ValueError, match="tile_bytes"):
        call(tile_bytes=least - 1)
