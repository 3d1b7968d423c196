"""The migrated code runs on old and new Megatrons, with and without this package: whose function, and the same bits.

On wheels of the package index. `make everything` names more Megatrons in MCORE_UNPATCH_MEGATRONS, a folder of unpacked
ones, and checkouts in place of the wheels.
"""

from __future__ import annotations

import json
import os
import shutil
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command import unpatch
from downloads import unpacked
from prepared import run_prepared
from repository import Repository

pytestmark = pytest.mark.ranks
TESTS = Path(__file__).parents[2]
OLD, NEW = ("0.16.1", "0.17.1", "prehook"), ("0.18.0", "0.18.2", "0.19.2", "main")
RELEASES = ("0.16.1", "0.18.2", "0.19.2")  # of the package index
MORE = os.environ.get("MCORE_UNPATCH_MEGATRONS", "")
EVERY = tuple(name for name in (*OLD, *NEW) if name in RELEASES or (MORE and Path(MORE, name).is_dir()))
LATEST = tuple(name for name in EVERY if name in ("0.19.2", "main"))
WITH_HOOK = tuple(name for name in EVERY if name in NEW)
MODELS = "megatron/bridge/models"
PATCHING = ("verl/models/mcore", "verl/utils/megatron_utils.py", "verl/workers/engine/megatron")
PASSED_ON = (
    f"{MODELS}/exaone/exaone45/modelling_exaone45/text_model.py",
    f"{MODELS}/qwen3_asr/modeling_qwen3_asr/thinker_model.py",
    f"{MODELS}/qwen_omni/modeling_qwen25_omni/thinker_model.py",
    f"{MODELS}/qwen_omni/modeling_qwen3_omni/thinker_model.py",
)


def _copied(source: Path, parts: tuple[str, ...], folder: Path, **files: str) -> Repository:
    made = Repository(folder)
    for part in parts:
        copy = shutil.copytree if (source / part).is_dir() else shutil.copyfile
        (made.path / part).parent.mkdir(parents=True, exist_ok=True)
        copy(source / part, made.path / part)
    made.commit(files)
    return made


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """VeRL as it is, and migrated without an option."""
    named = os.environ.get("MCORE_UNPATCH_VERL", "")
    before = Path(named) if named else unpacked("verl", "0.9.1")
    images = {f"docker/Dockerfile.{one}": f"RUN pip install megatron-core=={one}\n" for one in RELEASES}
    made = _copied(before, PATCHING, tmp_path_factory.mktemp("verl"), **images)
    assert unpatch("migrate", "--jobs=1", "--select", "MCU1,MCU2,MCU7", cwd=made.path).code == 0
    return before, made.path


@pytest.fixture(scope="module")
def fusion(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """NeMo RL as it is, migrated, and the function that is shown in place of the package."""
    named = os.environ.get("MCORE_UNPATCH_NEMO_RL", "")
    if not named:
        pytest.skip("MCORE_UNPATCH_NEMO_RL names no checkout")
    made = _copied(Path(named), ("nemo_rl", "pyproject.toml"), tmp_path_factory.mktemp("nemo_rl"))
    done = unpatch("migrate", "--output-format", "json", "--select", "MCU7", cwd=made.path)
    assert done.code == 0, done.err
    (recipe,) = done.json["recipes"]
    text = made.path / "recipe.py"
    text.write_text(recipe[recipe.index("\nlinear_ce_fusion = ") : recipe.index("\nWhere ")])
    return Path(named), made.path, text


@pytest.fixture(scope="module")
def bridges(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Megatron-Bridge as it is, and migrated."""
    named = os.environ.get("MCORE_UNPATCH_MEGATRON_BRIDGE", "")
    before = Path(named, "src") if named else unpacked("megatron-bridge", "0.6.2")
    made = _copied(before, ("megatron",), tmp_path_factory.mktemp("bridge"))
    assert unpatch("migrate", "--jobs=1", *PASSED_ON, cwd=made.path).code == 0
    return before / "megatron/bridge", made.path / "megatron/bridge"


@cache
def _said(program: str, release: str, *arguments: str) -> list[dict[str, Any]]:
    megatron = Path(MORE, release) if MORE and Path(MORE, release).is_dir() else unpacked("megatron-core", release)
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (TESTS, TESTS / "compat")))}
    done = run_prepared(megatron, Path(__file__).with_name(f"{program}.py"), *arguments, env=paths)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _verl(release: str, trees: tuple[Path, Path]) -> list[dict[str, Any]]:
    """Before, after, and after where the package is not installed."""
    return deepcopy(_said("engine_mtp", release, f"{trees[0]}", f"{trees[1]}", f"{trees[1]},alone"))


def _nemo_rl(release: str, fusion: tuple[Path, Path, Path]) -> list[dict[str, Any]]:
    """The same, and with the function in place of the package."""
    before, after, recipe = fusion
    return _said("nemo_rl_fusion", release, f"{before}", f"{after}", f"{after},alone", f"{before},{recipe}")


@pytest.mark.parametrize("release", EVERY)
def test_without_the_package_all_is_as_it_was(release: str, trees: tuple[Path, Path]) -> None:
    was, _, now = _verl(release, trees)
    before, after = was.pop("no layers"), now.pop("no layers")
    assert now == was
    # What Megatron does itself since 0.17 is not patched any more: the same bits.
    assert before["legacy"] and after["legacy"] is release.startswith("0.16")
    assert before["digests"] == after["digests"] and len(after["digests"]) > 10


@pytest.mark.parametrize("release", EVERY)
def test_with_the_package_the_same_bits_and_what_raised_works(release: str, trees: tuple[Path, Path]) -> None:
    was, now, _ = _verl(release, trees)
    assert now.pop("no layers")["digests"] == was["no layers"]["digests"]
    one = now.pop("forward only")
    assert one["legacy"] is (release in OLD) and one["digests"] == was["forward only"]["digests"]
    for case, said in now.items():
        assert said["legacy"] is (release in OLD)  # which side runs
        assert len(said["digests"]) > 50
        if "error" in was[case]:
            assert case.startswith("recompute") and release.startswith("0.18")
            assert "padding_mask" in was[case]["error"]
            # Recomputing changes no bit: the oracle is the same model without it.
            assert said["digests"] == now[case.replace("recompute", "plain")]["digests"]
        else:
            assert said["digests"] == was[case]["digests"]
        if release in NEW:
            assert said["processor"] and not was[case].get("processor", False)


@pytest.mark.parametrize("release", [name for name in EVERY if name.startswith("0.18")])
def test_the_crash_that_the_move_mends_is_there(release: str, trees: tuple[Path, Path]) -> None:
    was = _verl(release, trees)[0]
    assert all("error" in said for case, said in was.items() if case.startswith("recompute"))


@pytest.mark.parametrize("release", LATEST)
def test_the_fusion_of_nemo_rl_with_and_without_the_package(release: str, fusion: tuple[Path, Path, Path]) -> None:
    was, now, alone, _ = _nemo_rl(release, fusion)
    assert alone == was
    assert was["from"] == "nemo_rl.distributed.model_utils" and now["from"] == "mcore_unpatch.compat.nemo_rl"
    for case in ("plain", "mtp"):
        values, others = was[case]["values"], now[case]["values"]
        assert values.keys() == others.keys()
        for name, value in values.items():  # the level is `rounding`
            assert others[name] == pytest.approx(value, rel=1e-5, abs=2e-6), name


@pytest.mark.parametrize("release", LATEST)
def test_the_function_in_place_of_the_package_gives_the_same_bits(
    release: str, fusion: tuple[Path, Path, Path]
) -> None:
    was, _, _, own = _nemo_rl(release, fusion)
    assert own["plain"]["digests"] == was["plain"]["digests"] and len(own["plain"]["digests"]) > 10
    assert own["mtp"]["digests"]["output"] == was["mtp"]["digests"]["output"]
    # As the recipe says: layers that no gradient reached train.
    trained = own["mtp"]["digests"].keys() - was["mtp"]["digests"].keys()
    assert trained and all(name.startswith("mtp.") for name in trained)


@pytest.mark.parametrize("release", WITH_HOOK)
def test_a_hook_reaches_the_models_of_megatron_bridge(release: str, bridges: tuple[Path, Path]) -> None:
    was, now = _said("bridge_hook", release, *map(str, bridges))
    for name, said in now.items():
        assert said == {"logits": [1, 8, 32], "hook": [8, 1], "calls": 1, "context": True, "same": True}
        if name == "Exaone45":
            assert "output_processor" in was[name]["error"]
        else:  # logits, in silence
            assert was[name] == {"logits": [1, 8, 32], "hook": [1, 8, 32], "calls": 0, "ignored": True}
