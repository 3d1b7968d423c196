"""Trainers that take logits: their functions come from the shims, in what Megatron's side of them uses alone."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
from command import unpatch
from downloads import unpacked
from planning import Files, Result, migrate
from repository import Repository

from mcore_unpatch.codemods.registry import own
from mcore_unpatch.codemods.testing import findings
from mcore_unpatch.editing.edits import Options
from mcore_unpatch.findings.rules import Selection

OFFERS = Selection(("MCU75",))
SAFE, UNSAFE = Options(selection=OFFERS), Options(unsafe_fixes=True, selection=OFFERS)
HOME = b"def calculate_log_probs_and_entropy(logits): ...\n"
IMPORT = b"from slime.utils.ppo_utils import calculate_log_probs_and_entropy"
USE = IMPORT + b"\n\nprint(calculate_log_probs_and_entropy)\n"
MOVED = b"from mcore_unpatch.compat.slime import calculate_log_probs_and_entropy\n"
MEGATRONS = b"""\
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy

vocab_parallel_cross_entropy()  # and no vocab_parallel_entropy
"""
WHERE = "slime/backends/megatron_utils"


def slime(**files: bytes) -> dict[str, bytes]:
    """A repository with slime's function and some files of its Megatron backend."""
    return {"slime/utils/ppo_utils.py": HOME, **{f"{WHERE}/{name}.py": data for name, data in files.items()}}


def test_off_unless_selected() -> None:
    files = slime(loss=USE)
    assert findings(files, Options()) == []
    assert migrate(files).files == files
    assert {one.shape for one in findings(files, SAFE)} == {"offer"}


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("slime/backends/fsdp_utils/loss.py", USE),  # no Megatron there
        ("tests/megatron/test_loss.py", USE),  # about slime's own function
        (f"{WHERE}/__init__.py", IMPORT + b"\n"),  # for others to import
        (f"{WHERE}/loss.py", b"from slime.utils.other import calculate_log_probs_and_entropy as f\n\nf()\n"),
        (f"{WHERE}/loss.py", USE.replace(b"slime.utils", b"other.utils")),
        (
            "roll_like/megatron_loss.py",  # Megatron's own function, and nothing of ROLL's
            MEGATRONS,
        ),
    ],
)
def test_left(path: str, data: bytes) -> None:
    files = {"slime/utils/ppo_utils.py": HOME, path: data}
    assert findings(files, UNSAFE) == []
    assert migrate(files, UNSAFE).files == files


def test_an_alias_and_a_comment_stay() -> None:
    before = b"from ....slime.utils.ppo_utils import (\n    calculate_log_probs_and_entropy as f,  # fast\n)\n\nf()\n"
    new = migrate(slime(loss=before), SAFE).files[f"{WHERE}/loss.py"]
    assert new == before.replace(b"....slime.utils.ppo_utils", b"mcore_unpatch.compat.slime")


def test_what_other_backends_share_takes_consent() -> None:
    """It needs no Megatron before, and does afterwards."""
    shared = {
        f"{WHERE}/actor.py": b"from slime.backends.shared import calculate_log_probs_and_entropy, loss\n\nloss()\n",
        "slime/backends/shared.py": USE + b"\n\ndef loss(): ...\n",
        "slime/backends/fsdp/actor.py": b"from slime.backends.shared import loss, calculate_log_probs_and_entropy\n",
    }
    files = {**slime(), **shared}
    assert migrate(files, SAFE).files == files
    result = migrate(files, UNSAFE)
    assert result.changed == {"slime/backends/shared.py"}
    assert result.files["slime/backends/shared.py"].startswith(MOVED)


def test_where_to_attach_is_said_once_for_all_files() -> None:
    result = migrate(slime(loss=USE, actor=USE), SAFE)
    assert len(result.changed) == 2
    [text] = {one.text for one in result.plan.remarks if one.kind == "by-hand"}
    assert "attach(model, DeferredHead())" in text


TRAINERS = {
    "slime": ("MCORE_UNPATCH_SLIME", {"actor", "loss", "logprob_utils"}, set()),
    "miles": ("MCORE_UNPATCH_MILES", {"actor"}, {"losses", "logit_processors"}),
    "roll": ("MCORE_UNPATCH_ROLL", {"megatron_strategy", "dpo_trainer"}, set()),
    "areal": ("MCORE_UNPATCH_AREAL", {"megatron_engine"}, {"functional"}),
}


def checkout(trainer: str) -> Files:
    """The Python files of a checkout that the environment names, or of the wheel of a trainer that has one."""
    variable = TRAINERS[trainer][0]
    folder = os.environ.get(variable, "").partition(os.pathsep)[0]
    if not folder and trainer == "areal":
        folder = str(unpacked("areal", "1.0.4"))
    if not folder:
        pytest.skip(f"{variable} names no checkout")
    words = next(one.words for one in own() if one.name == trainer)
    paths = [path for path in Path(folder).rglob("*.py") if path.is_file()]
    read = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    return {path: data for path, data in read.items() if any(word in data for word in words)}


def imported(result: Result, trainer: str) -> dict[str, set[str]]:
    """What each file imports from the shim."""
    return {
        Path(path).stem: {
            alias.name
            for node in ast.walk(ast.parse(data))
            if isinstance(node, ast.ImportFrom) and node.module == f"mcore_unpatch.compat.{trainer}"
            for alias in node.names
        }
        for path, data in result.files.items()
        if path in result.changed
    }


@pytest.mark.slow
@pytest.mark.parametrize("trainer", TRAINERS)
def test_real_trees(trainer: str) -> None:
    """`migrate` has every new file parsed, and a second run do nothing."""
    files = checkout(trainer)
    _, safe, unsafe = TRAINERS[trainer]
    first = migrate(files, SAFE)
    assert {Path(path).stem for path, data in first.files.items() if data != files[path]} == safe
    second = migrate(files, UNSAFE)
    assert {Path(path).stem for path, data in second.files.items() if data != files[path]} == safe | unsafe
    assert all("fsdp" not in path and "archon" not in path for path in second.changed)
    shims = imported(second, trainer)
    assert set().union(*shims.values()) >= set(next(one for one in own() if one.name == trainer).homes) - {
        "get_label_token_log_probs_from_vocab_parallel_logits"
    }


def test_nothing_is_imported_that_the_image_of_a_trainer_cannot_load(tmp_path: Path) -> None:
    """slime's pin stands in its Dockerfile: on 0.16 the shim raises when it is imported."""
    repository = Repository(tmp_path)
    files = {path: data.decode() for path, data in slime(loss=USE).items()}
    repository.commit({**files, "docker/Dockerfile": "FROM x\nRUN pip install megatron-core==0.16.1\n"})
    asked = ("migrate", "--diff", "--select", "MCU75")
    result = unpatch(*asked, cwd=tmp_path)
    assert result.out == ""
    assert "megatron-core>=0.18" in result.err
    assert "docker/Dockerfile:2" in result.err
    assert MOVED.decode() in unpatch(*asked, "--target-mcore", "0.19", cwd=tmp_path).out
