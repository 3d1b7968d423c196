"""Where a model comes from: folders, wheels, commits; and what is no source is refused in words."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from command import importing

from mcore_unpatch.errors import UsageError
from mcore_unpatch.library.model import Library, Model
from mcore_unpatch.library.sources import model_of, read_source
from mcore_unpatch.megatron.versions import LIBRARY
from mcore_unpatch.stacks.sources import source_at, target

BASE = """
class Base:
    def {run}(self, x):
        one(x)
        two(x)
        return x

def f({parameters}):
    return x
"""
OLD = {
    "package_info.py": "MAJOR = 0\nMINOR = 30\nPATCH = 1\n",
    "__init__.py": "",
    "a.py": BASE.format(run="run", parameters="x"),
    "gone.py": "class Lost:\n    pass\n\ndef g():\n    pass\n",
}
NEW = OLD | {
    "a.py": BASE.format(run="perform", parameters="x, y=1"),
    "elsewhere.py": "class Lost:\n    pass\n",
    "gone.py": "VALUE = 1\n",
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def written(files: dict[str, str], folder: Path) -> Path:
    for name, text in files.items():
        path = folder / "megatron" / "core" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_folder_a_wheel_and_a_commit_are_read_alike(tmp_path: Path) -> None:
    folder = written(OLD, tmp_path / "old")
    wheel = tmp_path / "megatron_core-0.30.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in OLD:
            archive.write(folder / "megatron" / "core" / name, f"megatron/core/{name}")
    for command in (("init", "-q"), ("add", "-A"), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(folder), str(tmp_path / "bare")], check=True)
    written(NEW, folder)  # the work tree has moved on
    subprocess.run(
        ["git", "-C", str(folder), "tag", "core_v0.17.0"], check=True
    )  # a fork may have the tag of a release
    assert [one.label for one in target(f"{folder}@core_v0.17.0").models()] == ["0.30.1"]
    places = [wheel, f"{folder}@HEAD", tmp_path / "bare", f"{tmp_path / 'bare'}@HEAD"]
    models = [model_at(place) for place in places]
    assert {one.label for one in models} == {"0.30.1"}
    assert all(dict(one.facts) == dict(models[0].facts) for one in models)
    assert dict(model_at(folder / "megatron" / "core").facts) != dict(models[0].facts)


@pytest.mark.parametrize("text", ["0.99", "0.17.9", "newest"])
def test_a_release_that_is_not_known_names_the_way_out(text: str) -> None:
    with pytest.raises(UsageError, match=r"pass its source|is no Megatron"):
        target(text)


def test_a_newer_release_is_read_where_it_is_installed(tmp_path: Path) -> None:
    """In a process of its own: this one may have another Megatron."""
    folder = written(OLD, tmp_path / "site")
    code = "from mcore_unpatch.stacks.sources import target; print(target('0.30').models()[0].label)"
    environment = {**os.environ, **importing(folder)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "0.30.1\n"


def model_at(place: Path | str) -> Model:
    source = source_at(place)
    return model_of(LIBRARY, source.label, source.files)


TOY = Library("toy", ("toy",))


class TestBadSource:
    """A clear error, never a traceback and never half a model."""

    def refused(self, place: Path | str) -> str:
        with pytest.raises(UsageError) as error:
            model_at(place)
        return str(error.value)

    def test_nothing_there(self, tmp_path: Path) -> None:
        assert "does not exist" in self.refused(tmp_path / "nothing")

    def test_no_megatron(self, tmp_path: Path) -> None:
        assert "contains no megatron/core" in self.refused(tmp_path)

    def test_no_zip(self, tmp_path: Path) -> None:
        (tmp_path / "broken.whl").write_text("no zip")
        assert "cannot be read as a wheel" in self.refused(tmp_path / "broken.whl")

    def test_a_named_pipe(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.whl")
        assert "is a named pipe, not a wheel" in self.refused(tmp_path / "pipe.whl")

    def test_a_named_pipe_among_the_files(self, tmp_path: Path) -> None:
        os.mkfifo(written(OLD, tmp_path) / "megatron/core/pipe.py")
        assert "pipe.py cannot be read" in self.refused(tmp_path)

    def test_a_file_that_is_nested_too_deeply(self, tmp_path: Path) -> None:
        assert "bad.py" in self.refused(written({**OLD, "bad.py": "x = " + "(" * 5000 + ")" * 5000}, tmp_path))

    def test_a_gigabyte_of_text_in_a_small_wheel(self, tmp_path: Path) -> None:
        wheel = tmp_path / "large.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("megatron/core/large.py", b"#" * (64 << 20))
        assert "too large to be read" in self.refused(wheel)

    def test_a_commit_that_is_not_there(self, tmp_path: Path) -> None:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        with pytest.raises(UsageError):
            read_source(f"{tmp_path}@0123456", TOY)

    def test_without_a_release(self, tmp_path: Path) -> None:
        assert "does not name a release" in self.refused(written({"__init__.py": ""}, tmp_path))
