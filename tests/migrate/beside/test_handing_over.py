"""Form E: old functions hand over where many files use them, or where a test puts something else in their place."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path

import pytest
from command import unpatch
from downloads import unpacked
from prepared import run_prepared
from repository import Repository

FILE = "verl/models/mcore/mtp_patch.py"
IMPORT = "from verl.models.mcore.mtp_patch import patch_postprocess\n"
USE = f"{IMPORT}\n\ndef prepare(model):\n    patch_postprocess(model)\n"
DOUBLES = {
    "a module": "from verl.models.mcore import mtp_patch\n\n\ndef test_it(monkeypatch):\n"
    '    monkeypatch.setattr(mtp_patch, "patch_postprocess", print)\n',
    "a text": "from unittest import mock\n\n\ndef test_it():\n"
    '    with mock.patch("verl.models.mcore.mtp_patch.patch_postprocess"):\n        pass\n',
}
NEW = """[project]
name = "verl"
version = "1"
dependencies = ["mcore-unpatch[compat]"]
[tool.unpatch]
megatron = ["0.18.0", "0.19.2"]
"""


def _repository(folder: Path, users: int, **more: str) -> Repository:
    made = Repository(folder / "repository")
    images = {f"docker/Dockerfile.{one}": f"RUN pip install megatron-core=={one}\n" for one in ("0.16.1", "0.18.0")}
    legacy = (unpacked("verl", "0.9.1") / FILE).read_text()
    made.commit({FILE: legacy, **images, **{f"verl/use_{number}.py": USE for number in range(users)}, **more})
    return made


def _changed(made: Repository) -> list[str]:
    return made.git("diff", "--name-only").split()


def test_with_three_users_the_functions_hand_over_and_all_is_done(tmp_path: Path) -> None:
    made = _repository(tmp_path, 3)
    before = (made.path / FILE).read_text()
    assert unpatch("migrate", cwd=made.path).code == 0
    assert _changed(made) == [FILE]
    after = (made.path / FILE).read_text()
    assert after.count("    if _on_hook is not None:\n        return _on_hook.") == 6
    assert "\n\ntry:  # Megatron Core 0.18 and later: on its output_processor hook\n" in after
    gone = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line.startswith("- ")]
    assert gone == []  # nothing else changed
    made.commit()
    again = unpatch("migrate", "--unsafe-fixes", cwd=made.path)
    assert again.out.startswith("Nothing to migrate.") and _changed(made) == []
    report = unpatch("scan", "--output-format", "json", cwd=made.path).json
    assert report["findings"] == [] and {one["path"] for one in report["done"]} >= {FILE, "verl/use_2.py"}
    assert unpatch("check", cwd=made.path).code == 0


@pytest.mark.parametrize("double", DOUBLES)
def test_where_a_test_replaces_the_name(tmp_path: Path, double: str) -> None:
    made = _repository(tmp_path, 1, **{"tests/test_it.py": DOUBLES[double]})
    assert unpatch("migrate", cwd=made.path).code == 0
    assert _changed(made) == [FILE]


def test_with_two_users_each_import_is_guarded(tmp_path: Path) -> None:
    made = _repository(tmp_path, 2)
    assert unpatch("migrate", cwd=made.path).code == 0
    assert _changed(made) == ["verl/use_0.py", "verl/use_1.py"]


def test_a_generator_does_not_hand_over(tmp_path: Path) -> None:
    made = _repository(tmp_path, 3)
    text = (made.path / FILE).read_text()
    head = "def unpatch_postprocess(model: torch.nn.Module):\n"
    made.commit({FILE: text.replace(head, f"{head}    yield\n")})
    unpatch("migrate", "--unsafe-fixes", cwd=made.path)
    assert FILE not in _changed(made)


def test_parameters_of_every_kind_are_passed_on(tmp_path: Path) -> None:
    made = _repository(tmp_path, 3)
    text = (made.path / FILE).read_text()
    head = "def patch_postprocess(model: torch.nn.Module"
    made.commit({FILE: text.replace(head, f"{head}, /, other=None, *rest, apart=3, **more")})
    unpatch("migrate", "--unsafe-fixes", "--select", "MCU1,MCU2,MCU7", cwd=made.path)
    assert (
        "return _on_hook.patch_postprocess(model, other, *rest, apart=apart, **more)" in (made.path / FILE).read_text()
    )


def test_when_the_last_old_one_goes(tmp_path: Path) -> None:
    made = _repository(tmp_path, 3)
    assert unpatch("migrate", cwd=made.path).code == 0
    for image in (made.path / "docker").iterdir():
        image.unlink()
    made.commit({"pyproject.toml": NEW, "verl/models/mcore/__init__.py": ""})
    assert unpatch("migrate", "--unsafe-fixes", cwd=made.path).code == 0
    uses = [(made.path / f"verl/use_{number}.py").read_text() for number in range(3)]
    assert all(use.startswith("from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess\n") for use in uses)
    assert not (made.path / FILE).exists()  # nothing names it any more


@pytest.mark.ranks
@pytest.mark.parametrize("flag", ["", ",alone"], ids=["with the package", "without it"])
def test_it_runs(tmp_path: Path, flag: str) -> None:
    """On a real model: the shim, or the old code where the package is not there, to the same bits."""
    engine = "verl/workers/engine/megatron/transformer_impl.py"
    whole = ("verl/utils/megatron_utils.py", "verl/models/mcore/patch.py", engine)
    made = _repository(tmp_path, 3, **{name: (unpacked("verl", "0.9.1") / name).read_text() for name in whole})
    assert unpatch("migrate", cwd=made.path).code == 0 and FILE in _changed(made)
    tests = Path(__file__).parents[2]
    env = {"PYTHONPATH": os.pathsep.join(map(str, (tests, tests / "compat")))}
    trees = [f"{made.path}{flag}", str(unpacked("verl", "0.9.1"))]
    megatron = unpacked("megatron-core", "0.19.2")
    done = run_prepared(megatron, Path(__file__).with_name("engine_mtp.py"), *trees, env=env)
    assert done.returncode == 0, done.stderr
    new, old = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    plain = [case for case in new if case != "no layers"]
    assert [new[case]["legacy"] for case in plain] == [bool(flag)] * len(plain)
    assert {case: said["digests"] for case, said in new.items()} == {c: said["digests"] for c, said in old.items()}
