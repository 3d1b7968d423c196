"""Once no Megatron without the hook is in use, and the project requires the package, no guard is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from beside_forms import FORMS, LEGACY
from command import unpatch
from repository import Repository

PROJECT = """[project]
name = "verl"
version = "1"
dependencies = [{}]
[tool.unpatch]
megatron = ["0.18.0", "0.19.2"]
"""
REQUIRED, NOT = PROJECT.format('"mcore-unpatch[compat]"'), PROJECT.format("")


def _migrated(folder: Path, use: str, project: str) -> str:
    made = Repository(folder / "repository")
    files = {"pyproject.toml": project, "verl/models/mcore/__init__.py": "", "verl/use.py": use}
    made.commit({**files, "verl/models/mcore/mtp_patch.py": LEGACY})
    done = unpatch("migrate", cwd=made.path)
    assert done.code == 0, done.err
    return (made.path / "verl/use.py").read_text()


@pytest.mark.parametrize("form", FORMS)
def test_the_old_branch_goes_and_then_the_old_code(tmp_path: Path, form: str) -> None:
    new = _migrated(tmp_path, FORMS[form], REQUIRED)
    legacy = tmp_path / "repository/verl/models/mcore/mtp_patch.py"
    assert "from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess" in new and legacy.exists()
    assert new.count("import patch_postprocess") == 1
    assert unpatch("migrate", "--unsafe-fixes", "--allow-dirty", cwd=tmp_path / "repository").code == 0
    assert not legacy.exists()
    assert "verl.models.mcore.mtp_patch" not in new.replace("mcore_unpatch.compat.verl.mtp_patch", "")


def test_the_old_branch_stays_where_the_package_is_not_required(tmp_path: Path) -> None:
    assert _migrated(tmp_path, FORMS["import"], NOT) == FORMS["import"]
