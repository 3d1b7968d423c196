"""The steps of an upgrade, one from each Megatron in use, and the fate of a patch over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mcore_unpatch.library.model import Model
from mcore_unpatch.upgrade.fates import URGENCIES, Fate

Step = tuple[Model, Model]


def labels(models: Sequence[Model]) -> str:
    """Some releases in words."""
    return ", ".join(dict.fromkeys(model.label for model in models))


def worst(fates: Sequence[Fate], steps: Sequence[Step]) -> Fate:
    """The most urgent fate; where the steps differ, every reason says which it is of."""
    chosen = min(fates, key=lambda fate: URGENCIES.index(fate.urgency))
    if all((fate.urgency, fate.reasons) == (chosen.urgency, chosen.reasons) for fate in fates):
        return chosen
    by_reason: dict[str, list[Step]] = {}
    for fate, step in zip(fates, steps, strict=True):
        for reason in fate.reasons or ("nothing changes",):
            by_reason.setdefault(reason, []).append(step)
    said = []
    for reason, some in by_reason.items():
        everywhere = len(some) == len(steps)
        said.append(reason if everywhere else f"{_of(some, steps)}: {reason}")
    return replace(chosen, reasons=tuple(said))


def _of(some: Sequence[Step], steps: Sequence[Step]) -> str:
    """Which steps are meant, by the side on which they differ."""
    several = len({new.label for _, new in steps}) > 1
    words = f"from {labels([old for old, _ in some])}"
    return f"{words} to {labels([new for _, new in some])}" if several else words
