"""Encoder detaches before and after `unpatch migrate`: the same results and gradients, at every depth."""

from pathlib import Path
from typing import Any

import pytest
from downstream.comparing import ROUNDING, Run, assert_same, run
from harness import run_on_ranks
from harness.faithful import inputs_for
from harness.files import load_file
from harness.models import Case, build_model, start_world

from mcore_unpatch.compat import detach_mtp_inputs

PAIRS = Path(__file__).parents[2] / "migrate/codemods/golden/mtp_detach"
NAMES = sorted(
    path.name.removesuffix(".out.py") for path in PAIRS.glob("*.out.py") if "def detach_encoder" in path.read_text()
)
DECODER, EMBEDDING = "decoder.layers.0.mlp.linear_fc1.weight", "embedding.word_embeddings.weight"
FIRST_DEPTH = "mtp.layers.0.eh_proj.weight"


def _run(case: Case, detach: Any) -> Run:
    model = build_model(case)
    detach(model)
    return run(model, lambda: {"loss": model(**inputs_for(case))})


def _detach(name: str, side: str) -> Any:
    return load_file(PAIRS / f"{name}.{side}.py").detach_encoder


def _before_and_after(name: str) -> None:
    start_world(Case(mtp=2))
    for case in (Case(mtp=1), Case(mtp=2)):
        before, after = (_run(case, _detach(name, side)) for side in ("in", "out"))
        assert_same(after, before)
        uncut = _run(case, lambda model: None)
        assert after.moved(uncut, DECODER) > ROUNDING
        assert (after.moved(uncut, EMBEDDING) > ROUNDING) is True
        assert (after.moved(uncut, FIRST_DEPTH) > ROUNDING) is (case.mtp == 2)  # the second depth no longer trains it


@pytest.mark.parametrize("name", NAMES)
def test_a_migrated_detach_cuts_where_the_patch_did(release: str, name: str) -> None:
    run_on_ranks(release, 1, _before_and_after, name)


def _undone() -> None:
    case = Case(mtp=1)
    start_world(case)
    uncut = _run(case, lambda model: None)
    assert_same(_run(case, lambda model: detach_mtp_inputs(model.mtp.layers[0]).remove()), uncut)
    nothing = {"embeddings": False, "hidden_states": False}
    assert_same(_run(case, lambda model: detach_mtp_inputs(model.mtp.layers[0], **nothing)), uncut)


def test_a_handle_undoes_it(release: str) -> None:
    run_on_ranks(release, 1, _undone)
