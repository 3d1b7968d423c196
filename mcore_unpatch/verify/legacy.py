"""The repository's own legacy function, run on the same model beside ours, where it can be imported and run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mcore_unpatch.verify.measure import TEMPERATURE, Row, distance, through_the_hook, tolerance
from mcore_unpatch.verify.models import Setting, batch, build


def _verl(module: Any, model: Any, inputs: dict[str, Any]) -> Tensor:
    """veRL's fused forward takes packed rows: one sequence at a time."""
    module.patch_fused_forward(model)
    rows = []
    for number in range(inputs["input_ids"].shape[0]):
        names = ("input_ids", "position_ids", "labels")
        row = {name: inputs[name][number : number + 1] for name in names}
        out = model(**row, attention_mask=None, temperature=TEMPERATURE)
        rows.append(out.log_probs.reshape(1, -1))
    return torch.cat(rows)


def _nemo_rl(module: Any, model: Any, inputs: dict[str, Any]) -> Tensor:
    """NeMo RL's patched forward scores the input ids, shifted by one, without a temperature."""
    module.patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=8)
    tokens = {name: inputs[name] for name in ("input_ids", "position_ids", "attention_mask")}
    scored: Tensor = model(**tokens, labels=inputs["input_ids"], return_logprobs_for_linear_ce_fusion=True)
    return scored


@dataclass(frozen=True)
class LegacyFunction:
    """A downstream's function: the module and name it is known by, and how it is called."""

    label: str
    module: str
    name: str
    call: Callable[[Any, Any, dict[str, Any]], Tensor]
    shifted: bool = False

    def file(self, repo: Path) -> Path:
        """Where it stands in a repository."""
        return repo.joinpath(*self.module.split(".")).with_suffix(".py")


KNOWN = (
    LegacyFunction("veRL", "verl.models.mcore.model_forward_fused", "patch_fused_forward", _verl),
    LegacyFunction(
        "NeMo RL",
        "nemo_rl.distributed.model_utils",
        "patch_gpt_model_forward_for_linear_ce_fusion",
        _nemo_rl,
        shifted=True,
    ),
)


def known_in(repo: Path) -> LegacyFunction | None:
    """The legacy function that a repository has."""
    for function in KNOWN:
        file = function.file(repo)
        if file.is_file() and f"def {function.name}(" in file.read_text(encoding="utf-8", errors="replace"):
            return function
    return None


@dataclass(frozen=True)
class BesideLegacy:
    """The work of a rank: our log-probs beside those of the repository's function, on the same weights and tokens."""

    repo: str

    def __call__(self, setting: Setting) -> list[Row]:
        """One row: values alone, for the legacy function's gradients are those of its own kernel."""
        function = known_in(Path(self.repo))
        assert function is not None
        quantity = f"log-probs, {function.label}'s own"
        sys.path.insert(0, self.repo)
        try:
            theirs_of = import_module(function.module)
        except Exception as error:
            return [Row(setting.name, quantity, note=f"cannot be imported: {type(error).__name__}: {error}")]
        inputs = batch(setting, 0)
        if function.shifted:
            from mcore_unpatch.compat import LogProbs, call_with_processor

            model = build(setting)
            labels = inputs["input_ids"].roll(-1, -1)
            with torch.no_grad():
                ours = call_with_processor(model, LogProbs(), **{**inputs, "labels": labels})[:, :-1]
        else:
            ours = through_the_hook(model := build(setting), inputs)["log-probs"]
        try:
            with torch.no_grad():
                theirs = function.call(theirs_of, model, inputs)
        except Exception as error:
            return [Row(setting.name, quantity, note=f"does not run here: {type(error).__name__}: {error}")]
        own = tolerance(setting.torch_dtype, 16 * max(model.config.hidden_size, setting.vocab))
        return [Row(setting.name, quantity, distance(ours, theirs), 2 * own)]
