"""Code that patches nothing has no findings: Megatron's own wheels, torch, transformers, the standard library."""

import importlib.util
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from downloads import unpacked

from mcore_unpatch.findings.finding import Report
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import ScanOptions

pytestmark = pytest.mark.slow
EVERYTHING = ScanOptions(selection=Selection.parse(["ALL"], []), possible=True)


def installed(name: str) -> Path:
    """The folder of an installed package."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # of the package above it
        spec = None
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{name} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def check_clean(report: Report, at_least: int) -> None:
    """Nothing was found in that many files."""
    assert [(f.path, f.line, f.target) for f in report.findings] == []
    assert report.files_scanned >= at_least


def test_megatron_core_as_installed() -> None:
    check_clean(scan([installed("megatron.core")], EVERYTHING), 300)


def test_megatron_core_0_18() -> None:
    folder = Path(sys.prefix) / "mcore-0.18.2"
    if not folder.is_dir():
        pytest.skip(f"megatron-core 0.18.2 is not installed in {folder}")
    check_clean(scan([folder], EVERYTHING), 300)


def test_the_whole_distribution_is_megatrons_own() -> None:
    """The wheel brings `megatron/training` too, which sets attributes of Megatron's own models."""
    check_clean(scan([unpacked("megatron-core", "0.19.2")], EVERYTHING), 500)


def test_diffusers() -> None:
    check_clean(scan([unpacked("diffusers", "0.42.1")], EVERYTHING), 1000)


def test_torch() -> None:
    check_clean(scan([installed("torch")], EVERYTHING), 1500)


def test_transformers() -> None:
    """Without its hundreds of models, which are much alike: trainers, generation, integrations, what models share."""
    folder = unpacked("transformers", "4.57.6")
    check_clean(scan([folder], replace(EVERYTHING, exclude=("models",), exclude_base=folder / "transformers")), 200)


def test_the_standard_library() -> None:
    library = Path(sysconfig.get_path("stdlib"))
    check_clean(scan([library], replace(EVERYTHING, exclude=("site-packages",), exclude_base=library)), 500)
