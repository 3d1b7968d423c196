"""A file of patches that nothing imports or names goes as a whole, where that is asked for, and undo brings it back."""

from __future__ import annotations

from pathlib import Path

import pytest
from beside_forms import LEGACY
from command import unpatch
from repository import Repository

FILE = "ours/models/old_overlap.py"
FILES = {
    "ours/__init__.py": "",
    "ours/models/__init__.py": "",
    FILE: LEGACY,
    "Dockerfile": "RUN pip install megatron-core==0.18.0\n",
}
NAMED = {
    "a test imports it": {"tests/test_it.py": "from ours.models.old_overlap import patch_postprocess\n"},
    "a settings file names it": {"conf/run.yaml": "patch: ours.models.old_overlap\n"},
    "a page names it": {"docs/patches.md": "See `old_overlap`.\n"},
    "a package loads all that is in it": {
        "ours/models/__init__.py": "import pkgutil\n\nlist(pkgutil.iter_modules())\n"
    },
    "it is a script": {FILE: f'{LEGACY}\nif __name__ == "__main__":\n    print(1)\n'},
    "it is in no package": {"ours/models/__init__.py": None},
}


def _repository(folder: Path, more: dict[str, str | None]) -> Repository:
    made = Repository(folder / "repository")
    made.commit({path: text for path, text in {**FILES, **more}.items() if text is not None})
    return made


def test_it_goes_only_where_that_is_asked_for(tmp_path: Path) -> None:
    made = _repository(tmp_path, {})
    (made.path / FILE).chmod(0o755)
    made.commit()
    assert unpatch("migrate", "--exact", cwd=made.path).code == 0
    assert unpatch("migrate", cwd=made.path).code == 0
    assert made.git("status", "--porcelain") == ""
    diff = unpatch("migrate", "--unsafe-fixes", "--diff", cwd=made.path)
    assert "+++ /dev/null\n" in diff.out and "nothing in the repository imports or names" in " ".join(diff.err.split())
    assert unpatch("migrate", "--unsafe-fixes", cwd=made.path).code == 0
    assert made.git("status", "--porcelain") == f"D {FILE}"
    assert unpatch("migrate", "--unsafe-fixes", cwd=made.path).out.startswith("Nothing to migrate.")
    assert unpatch("undo", cwd=made.path).code == 0
    assert made.git("status", "--porcelain") == ""  # with its mode
    (tmp_path / "diff").write_text(diff.out)
    made.git("apply", str(tmp_path / "diff"))
    assert made.git("status", "--porcelain") == f"D {FILE}"


def test_it_is_a_commit_of_its_own(tmp_path: Path) -> None:
    made = _repository(tmp_path, {})
    assert unpatch("migrate", "--unsafe-fixes", "--commit", cwd=made.path).code == 0
    assert made.git("show", "--format=", "--name-status") == f"D\t{FILE}"
    assert "(behaviour)" in made.git("log", "-1", "--format=%b")


@pytest.mark.parametrize("case", NAMED)
def test_it_stays_where(case: str, tmp_path: Path) -> None:
    made = _repository(tmp_path, NAMED[case])
    assert unpatch("migrate", "--unsafe-fixes", cwd=made.path).code == 0
    assert (made.path / FILE).exists()
