"""What `migrate` makes of real code: released wheels everywhere, and every clone in MCORE_UNPATCH_CHECKOUTS."""

import os
import shutil
from pathlib import Path

import pytest
from accuracy.scoring import repositories
from builders import load_builder
from command import CLEAN, unpatch
from downloads import unpacked
from mergeable import faults
from prepared import run_prepared

pytestmark = pytest.mark.slow
WHEELS = {one.release: one.judged for one in repositories("field") if one.release}
CLONES = (
    sorted(Path(os.environ["MCORE_UNPATCH_CHECKOUTS"]).iterdir()) if "MCORE_UNPATCH_CHECKOUTS" in os.environ else []
)
SOURCES = [pytest.param(*one, id=one[0]) for one in WHEELS.items()]
SOURCES += [pytest.param(str(clone), None, id=clone.name) for clone in CLONES if clone.is_dir()]
STAYS = {"areal-1.0.4", "mcore-bridge-1.2.3"}  # where every patch stays, or is for a person
IMPORTED_ON = {"verl-0.9.1": "0.18.2", "skyrl-0.3.0": "0.19.2"}


def copied(source: str, to: Path) -> Path:
    """A copy of a wheel's Python files, or of a clone."""
    if source in WHEELS:
        name, _, version = source.rpartition("-")
        shutil.copytree(unpacked(name, version), to, ignore=lambda _, names: {one for one in names if _is_data(one)})
    else:
        shutil.copytree(source, to, symlinks=True)
    return to


def _is_data(name: str) -> bool:
    return "." in name and not name.endswith((".py", ".dist-info", ".toml", ".txt"))


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a repository that could be edited."""
    files = (path for path in folder.rglob("*") if path.suffix in (".py", ".toml", ".txt") and path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.first
@pytest.mark.parametrize(("source", "target"), SOURCES)
def test_what_is_edited_could_be_merged_and_undone(tmp_path: Path, source: str, target: str | None) -> None:
    copy = copied(source, tmp_path / "copy")
    before = contents(copy)
    asked = ("migrate", "--unsafe-fixes", "--jobs=1", *(("--target-mcore", target) if target else ()))
    done = unpatch(*asked, "--allow-no-vcs", "--allow-dirty", cwd=copy)
    assert done.code == CLEAN, done.err
    after = {path: data for path, data in contents(copy).items() if data != before[path]}
    assert faults(before, after) == []
    assert bool(after) == (source not in STAYS) or source not in WHEELS
    if source in IMPORTED_ON:
        check_imported(copied(source, tmp_path / "before"), copy, list(after), IMPORTED_ON[source])
    if after:
        assert unpatch(*asked, "--check", cwd=copy).code == CLEAN
        assert unpatch("undo", cwd=copy).code == CLEAN
        assert contents(copy) == before


def check_imported(before: Path, after: Path, edited: list[str], release: str) -> None:
    """What a Megatron with the hook imported of the edited files, it still does."""
    oracle, megatron = load_builder("upgrade_oracle"), unpacked("megatron-core", release)
    told = [path for path in edited if path.endswith(".py")]
    old, new = (oracle.observe(megatron, folder, told, [], run_prepared)["modules"] for folder in (before, after))
    assert told and {path for path in told if new[path]} <= {path for path in told if old[path]}
