"""Real logits in a shim: to the trainer's own function, if there is one and it has not become the shim."""

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from mcore_unpatch.compat import LazyLogits, ProcessGroups
from mcore_unpatch.compat.logits.lazy import LMHead, real_logits_to


@real_logits_to("a_trainer.loss")
def score(logits: Any, labels: Tensor, scale: float = 1.0) -> Any:
    """Ours."""
    return "ours", logits, labels, scale


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("a_trainer.loss")
    monkeypatch.setitem(sys.modules, "a_trainer", ModuleType("a_trainer"))
    monkeypatch.setitem(sys.modules, "a_trainer.loss", module)
    return module


def test_each_kind_of_logits_has_its_function(trainer: ModuleType) -> None:
    trainer.score = lambda logits, labels, scale=1.0: ("theirs", logits, labels, scale)  # type: ignore[attr-defined]
    weight, real = torch.ones(3, 2), torch.ones(1, 3)
    lazy = LazyLogits(torch.ones(1, 2), LMHead.of(weight, ProcessGroups()))
    for arguments, named in (((), {"logits": None}), ((None,), {})):
        for logits, who in ((lazy, "ours"), (real, "theirs")):
            found = score(*(logits for _ in arguments), labels=real, scale=2.0, **dict.fromkeys(named, logits))
            assert (found[0], found[3]) == (who, 2.0)
            assert found[1] is logits


def test_a_function_that_has_become_ours_is_not_called_again(trainer: ModuleType) -> None:
    ours = ModuleType("ours")
    exec("def score(*_): return score()", vars(ours) | {"__name__": "mcore_unpatch.compat.x"}, vars(ours))
    trainer.score = ours.score  # type: ignore[attr-defined]
    assert trainer.score.__module__.startswith("mcore_unpatch.")
    with pytest.raises(TypeError, match=r"there is no a_trainer\.loss\.score for it; attach DeferredHead"):
        score(torch.ones(1, 3), torch.ones(1))


def test_a_trainer_that_is_not_installed_is_named() -> None:
    with pytest.raises(TypeError, match=r"got Tensor, and there is no a_trainer\.loss\.score"):
        score(torch.ones(1, 3), torch.ones(1))
