"""What `unpatch upgrade` predicts for veRL's patches, and what they do on the real release."""

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from downstream.verl import verl_files
from harness import run_on_ranks
from harness.faithful import inputs_for
from harness.models import Case, build_model, start_world

from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import parse_version
from mcore_unpatch.survey.survey import ScanOptions
from mcore_unpatch.upgrade.fates import Fate
from mcore_unpatch.upgrade.run import upgrade

# A patch of veRL: the function that installs it, the method it replaces, and the model that meets it.
PATCHES = {
    "patch_postprocess": ("_postprocess", Case(mtp=1)),
    "patch_mtp_layer_get_embeddings": ("_get_embeddings", Case(mtp=1)),
    "patch_mtp_layer_checkpointed_forward": ("_checkpointed_forward", Case(mtp=1, recompute=True)),
}


def wheel(version: str) -> Path:
    """The unpacked wheel of a release of veRL."""
    from downloads import unpacked  # in the test's own process: ranks load this file too

    return unpacked("verl", version)


@cache
def fates(verl: str, old: str, new: str) -> list[Fate]:
    """What `upgrade` says of the patches in veRL's `mtp_patch`."""
    with TemporaryDirectory() as folder:  # alone: the repository around a file is read too
        shutil.copy(wheel(verl) / "verl" / "models" / "mcore" / "mtp_patch.py", folder)
        models = (known.newest(parse_version(release)) for release in (old, new))
        return upgrade([Path(folder)], ScanOptions(jobs=1), *models).fates


def predicted(verl: str, method: str, old: str, new: str) -> list[str]:
    """The reasons why veRL's patch of a method breaks."""
    fate = next(fate for fate in fates(verl, old, new) if fate.finding.target.endswith(f".{method}"))
    return [reason for reason in fate.reasons if "Error" in reason] if fate.urgency == "breaks" else []


def outcome(folder: str, name: str, case: Case) -> str | None:
    """The exception that a training step raises under one patch."""
    start_world(case)
    model, inputs = build_model(case), inputs_for(case)
    model.train()
    with verl_files(folder) as files:
        theirs: Any = files("mtp_patch")
        getattr(theirs, name)(model)
        try:
            model(**inputs).sum().backward()
        except (TypeError, ValueError, AttributeError) as error:
            return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize(
    ("verl", "old", "name"),
    [
        ("0.7.1", "0.16", "patch_postprocess"),
        ("0.7.1", "0.16", "patch_mtp_layer_get_embeddings"),
        ("0.8.0", "0.17", "patch_postprocess"),
        ("0.8.0", "0.17", "patch_mtp_layer_get_embeddings"),
        ("0.8.0", "0.17", "patch_mtp_layer_checkpointed_forward"),
    ],
)
def test_a_predicted_exception_is_the_one_that_is_raised(release: str, verl: str, old: str, name: str) -> None:
    method, case = PATCHES[name]
    said = predicted(verl, method, old, release)
    assert said
    (raised,) = run_on_ranks(release, 1, outcome, str(wheel(verl)), name, case)
    assert raised is not None, f"predicted: {said}"
    kind = raised.partition(":")[0]
    assert any(reason.endswith(kind) or f"{kind} " in reason for reason in said), f"predicted {said}, raised {raised}"


def test_what_is_not_predicted_to_break_runs(release: str) -> None:
    """veRL 0.9.1 knows both releases: its patches are not said to break, and do not."""
    for name in ("patch_postprocess", "patch_mtp_layer_get_embeddings"):
        method, case = PATCHES[name]
        assert predicted("0.9.1", method, "0.17", release) == []
        assert run_on_ranks(release, 1, outcome, str(wheel("0.9.1")), name, case) == [None]
