"""Finding a name in a release: through re-exports and bases, and where it went."""

import os
import subprocess
import sys
import zipfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from mcore_unpatch.errors import UsageError
from mcore_unpatch.megatron import history
from mcore_unpatch.upgrade.changes import change
from mcore_unpatch.upgrade.releases import Release, known_release, release_at

BASE = """
class Base:
    def {run}(self, x):
        one(x)
        two(x)
        return x

def f({parameters}):
    return x
"""
CHILD = """
from megatron.core.a import Base
from torch import nn

class Child(Base):
    def own(self):
        self.state = 1
"""
OLD = {
    "package_info.py": "MAJOR = 0\nMINOR = 30\nPATCH = 1\n",
    "__init__.py": "from .a import *\nfrom megatron.core.a import Base as Renamed\n",
    "a.py": BASE.format(run="run", parameters="x"),
    "b.py": CHILD,
    "gone.py": "class Lost:\n    pass\n\ndef g():\n    pass\n",
}
NEW = OLD | {
    "a.py": BASE.format(run="perform", parameters="x, y=1"),
    "elsewhere.py": "class Lost:\n    pass\n",
    "gone.py": "VALUE = 1\n",
}


def written(files: dict[str, str], folder: Path) -> Path:
    for name, text in files.items():
        path = folder / "megatron" / "core" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def both(tmp_path: Path) -> tuple[Release, Release]:
    keep = ExitStack()
    return release_at(written(OLD, tmp_path / "old"), keep), release_at(written(NEW, tmp_path / "new"), keep)


def where(release: Release, name: str) -> str | None:
    found = release.find(f"megatron.core.{name}")
    return found.name.removeprefix("megatron.core.") if found else None


def test_names_are_found_through_re_exports_bases_and_stars(both: tuple[Release, Release]) -> None:
    old, _ = both
    assert where(old, "b.Child.run") == "a.Base.run"
    assert where(old, "b.Child.state") == "b.Child.state"
    assert where(old, "Renamed.run") == "a.Base.run"
    assert where(old, "f") == "a.f"
    assert where(old, "b.nn") == "b.nn"
    assert where(old, "b.Child.nothing") is None
    assert where(old, "nowhere.f") is None


@pytest.mark.parametrize(
    ("name", "kind", "moved_to"),
    [
        ("b.Child.own", "unchanged", None),
        ("a.f", "signature", None),
        ("a.Base.run", "moved", "a.Base.perform"),
        ("gone.Lost", "moved", "elsewhere.Lost"),
        ("gone.g", "gone", None),
        ("a.Base", "body", None),
        ("a.never", "unknown", None),
    ],
)
def test_what_happened_to_a_name(both: tuple[Release, Release], name: str, kind: str, moved_to: str | None) -> None:
    happened = change(f"megatron.core.{name}", *both)
    assert happened.kind == kind
    assert happened.moved_to == (f"megatron.core.{moved_to}" if moved_to else None)


def test_a_signature_says_which_parameter(both: tuple[Release, Release]) -> None:
    assert change("megatron.core.a.f", *both).sentence == "signature changed: new parameter `y`"
    assert change("megatron.core.a.f", *reversed(both)).sentence == "signature changed: removed `y`"


@pytest.mark.parametrize(("text", "label"), [("0.17", "0.17.1"), ("0.17.0", "0.17.0"), ("v0.19", "0.19.2")])
def test_a_known_release_by_its_number(text: str, label: str) -> None:
    release = known_release(text)
    assert (release.label, release.names) == (label, history.snapshot(label))


@pytest.mark.parametrize("text", ["0.99", "0.17.9", "newest"])
def test_a_release_that_is_not_known_names_the_way_out(text: str) -> None:
    with pytest.raises(UsageError, match=r"--mcore PATH|not a megatron-core version"):
        known_release(text)


def test_a_newer_release_is_read_where_it_is_installed(tmp_path: Path) -> None:
    """In a process of its own: this one may have another Megatron."""
    folder = written(OLD, tmp_path / "site")
    code = "from mcore_unpatch.upgrade.releases import known_release; print(known_release('0.30').label)"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "0.30.1\n"


def test_a_wheel_and_the_folder_itself_are_read_alike(tmp_path: Path) -> None:
    folder = written(OLD, tmp_path / "old")
    with zipfile.ZipFile(tmp_path / "megatron_core-0.30.1-py3-none-any.whl", "w") as archive:
        for name in OLD:
            archive.write(folder / "megatron" / "core" / name, f"megatron/core/{name}")
    with ExitStack() as keep:
        packed = release_at(tmp_path / "megatron_core-0.30.1-py3-none-any.whl", keep)
        assert packed.names == release_at(folder / "megatron" / "core", keep).names
        assert (packed.label, packed.version) == ("0.30.1", (0, 30))


def test_what_is_no_megatron_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.whl").write_text("no zip")
    for path, said in ((tmp_path, "no megatron/core"), (tmp_path / "broken.whl", "cannot be read as a wheel")):
        with ExitStack() as keep, pytest.raises(UsageError, match=said):
            release_at(path, keep)
