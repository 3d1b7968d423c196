"""`unpatch init` as a new user meets it: what it shows and writes, and that `check` is green then."""

from __future__ import annotations

from pathlib import Path

from beside_forms import LEGACY
from command import unpatch
from repository import Repository

FILES = {
    "pyproject.toml": '[project]\nname = "ours"\nversion = "1"\n',
    "docker/Dockerfile.stable": "RUN pip install megatron-core==0.18.0\n",
    "docker/Dockerfile.npu": "RUN pip install megatron-core==0.16.1\n",
    "ours/legacy.py": LEGACY,
}
WRITTEN = {"pyproject.toml", "unpatch.lock", "unpatch.baseline.json", ".github/workflows/unpatch.yml"}


def test_it_shows_and_writes_nothing_unasked(tmp_path: Path) -> None:
    made = Repository(tmp_path)
    made.commit(FILES)
    shown = unpatch("init", "--dry-run", cwd=tmp_path)
    assert shown.code == 0 and all(name in shown.out for name in WRITTEN)
    assert unpatch("init", cwd=tmp_path).code == 2
    assert made.git("status", "--porcelain") == ""


def test_with_yes_the_gate_is_green_afterwards(tmp_path: Path) -> None:
    made = Repository(tmp_path)
    made.commit(FILES)
    assert unpatch("init", "--yes", cwd=tmp_path).code == 0
    assert {line.split()[-1] for line in made.git("status", "--porcelain", "-uall").splitlines()} == WRITTEN
    assert 'megatron = ["0.18.0", "0.16.1"]' in (tmp_path / "pyproject.toml").read_text()
    made.commit()
    assert unpatch("check", cwd=tmp_path).code == 0
    again = unpatch("init", "--dry-run", cwd=tmp_path)
    assert "Everything is there already." in again.out
