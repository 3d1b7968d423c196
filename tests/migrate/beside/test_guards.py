"""Guards that somebody wrote by hand are understood: old code below them is a fallback, and nobody edits it."""

from __future__ import annotations

from pathlib import Path

import pytest
from beside_forms import FORMS, LEGACY
from command import unpatch
from repository import Repository

OPTIONS = (
    [],
    ["--exact"],
    ["--unsafe-fixes"],
    ["--stack", "0.16.1"],
    ["--stack", "0.18.0", "--unsafe-fixes"],
    ["--target-mcore", "0.19.2", "--unsafe-fixes"],
    ["--select", "MCU1,MCU2,MCU7", "--unsafe-fixes", "--stack", "0.18.0"],
)


def _repository(folder: Path, form: str, *images: str) -> Repository:
    made = Repository(folder / "repository")
    files = {
        "verl/__init__.py": "",
        "verl/models/mcore/mtp_patch.py": LEGACY,
        "verl/use.py": FORMS[form],
        **{f"docker/Dockerfile.{image}": f"RUN pip install megatron-core=={image}\n" for image in images},
    }
    made.commit(files)
    return made


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_a_guard_survives_every_option(tmp_path: Path, form: str, options: list[str]) -> None:
    made = _repository(tmp_path, form, "0.16.1", "0.18.0")
    done = unpatch("migrate", *options, cwd=made.path)
    assert done.code == 0, done.err
    assert (made.path / "verl/use.py").read_text() == FORMS[form]
    assert (made.path / "verl/models/mcore/mtp_patch.py").read_text() == LEGACY


@pytest.mark.parametrize("form", FORMS)
def test_a_guarded_place_is_nothing_new(tmp_path: Path, form: str) -> None:
    made = _repository(tmp_path, form, "0.16.1", "0.18.0")
    made.commit({"verl/again.py": FORMS[form]})
    checked = unpatch("check", "--base", "HEAD~1", cwd=made.path)
    assert checked.code == 0, checked.out
    told = unpatch("upgrade", "--to", "0.19.2", "--output-format", "json", cwd=made.path).json
    assert {one["urgency"] for one in told["patches"]} <= {"harmless", "unnecessary"}, told["patches"]
    assert "Nothing that was read needs work" in unpatch("upgrade", "--to", "0.19.2", cwd=made.path).out


@pytest.mark.parametrize("form", FORMS)
def test_a_guarded_place_is_done(tmp_path: Path, form: str) -> None:
    made = _repository(tmp_path, form, "0.16.1", "0.18.0")
    report = unpatch("scan", "--output-format", "json", cwd=made.path).json
    assert report["findings"] == []
    assert {(one["path"], one["verdict"]) for one in report["done"]} == {
        ("verl/use.py", "done"),
        ("verl/models/mcore/mtp_patch.py", "done"),
    }
    assert any("when 0.16.1 goes" in one["evidence"] for one in report["done"])
    assert unpatch("check", cwd=made.path).code == 0


PATCHES = {
    "names of Megatron's own are told by its releases": """
try:
    from megatron.core.utils import get_tensor_model_parallel_group_if_none
except ImportError:
    import megatron.core.utils

    megatron.core.utils.get_tensor_model_parallel_group_if_none = lambda group, *_, **__: group
""",
    "a handler of every error is no fallback of an import": """
from megatron.core.transformer import mlp

try:
    import kernels

    kernels.install(mlp)
except Exception:
    mlp.MLP = None
""",
    "the hook is no way around another method": """
from inspect import signature
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer as Layer


def patch(layer: Layer, forward, output_processor=None):
    params = list(signature(layer._checkpointed_forward).parameters)
    if params[0] != "forward_func":
        return
    layer._checkpointed_forward = forward
""",
}


@pytest.mark.parametrize(("says", "source"), PATCHES.items(), ids=PATCHES)
def test_no_guard_is_made_up(tmp_path: Path, says: str, source: str) -> None:
    made = Repository(tmp_path / "repository")
    made.commit({"old.py": source})
    report = unpatch("scan", "--output-format", "json", "--target-mcore", "0.19.2", cwd=made.path).json
    [finding] = [*report["findings"], *report["done"]]
    assert finding["verdict"] == ("steps" if "every error" in says else "delete")
    assert "runs only where" not in finding["evidence"]
