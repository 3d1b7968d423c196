"""Where a model comes from: folders, wheels, commits; and what is no source is refused in words."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from command import importing

from mcore_unpatch.errors import UsageError
from mcore_unpatch.library import build as builder, sources
from mcore_unpatch.library.model import Library, Model
from mcore_unpatch.library.sources import model_of, read_source
from mcore_unpatch.megatron.versions import LIBRARY
from mcore_unpatch.stacks.sources import source_at, target
from mcore_unpatch.upgrade.fates import change

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


@pytest.mark.parametrize(
    ("name", "kind", "moved_to"),
    [
        ("a.f", "signature", None),
        ("a.Base.run", "moved", "a.Base.perform"),
        ("gone.Lost", "moved", "elsewhere.Lost"),
        ("gone.g", "gone", None),
        ("a.Base", "body", None),
        ("a.never", "unknown", None),
    ],
)
def test_what_happened_to_a_name(tmp_path: Path, name: str, kind: str, moved_to: str | None) -> None:
    old, new = model_at(written(OLD, tmp_path / "old")), model_at(written(NEW, tmp_path / "new"))
    happened = change(f"megatron.core.{name}", old, new)
    assert happened.kind == kind
    assert happened.moved_to == (f"megatron.core.{moved_to}" if moved_to else None)


def test_a_signature_says_which_parameter(tmp_path: Path) -> None:
    old, new = model_at(written(OLD, tmp_path / "old")), model_at(written(NEW, tmp_path / "new"))
    assert change("megatron.core.a.f", old, new).sentence == "signature changed: new parameter `y`"
    assert change("megatron.core.a.f", new, old).sentence == "signature changed: removed `y`"


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


@pytest.mark.parametrize(("text", "label"), [("0.17", "0.17.1"), ("0.17.0", "0.17.0"), ("v0.19", "0.19.2")])
def test_a_known_release_by_its_number(text: str, label: str) -> None:
    assert target(text).models()[0].label == label


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


def test_what_was_built_once_is_taken_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"toy/__init__.py": b"def f(): ...\n"}
    first = model_of(TOY, "1", files)
    monkeypatch.setattr(sources, "build", lambda *_: pytest.fail("built again"))
    assert dict(model_of(TOY, "1", files).facts) == dict(first.facts)
    monkeypatch.undo()
    monkeypatch.setattr(builder, "gc", builder.gc)
    assert "toy.g" in model_of(TOY, "1", {"toy/__init__.py": b"def g(): ...\n"}).facts


def test_a_cache_that_is_broken_or_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"toy/__init__.py": b"def f(): ...\n"}
    model_of(TOY, "1", files)
    (kept,) = (tmp_path / "cache").rglob("*.bin")
    kept.write_bytes(b"half of it")
    assert "toy.f" in model_of(TOY, "1", files).facts
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert "toy.f" in model_of(TOY, "1", files).facts


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

    def test_a_file_that_does_not_parse(self, tmp_path: Path) -> None:
        said = self.refused(written({**OLD, "bad.py": "def f(:\n"}, tmp_path))
        assert "megatron/core/bad.py, line 1, is not valid" in said
        assert "Nothing was read" in said

    def test_a_file_that_is_nested_too_deeply(self, tmp_path: Path) -> None:
        assert "bad.py" in self.refused(written({**OLD, "bad.py": "x = " + "(" * 5000 + ")" * 5000}, tmp_path))

    def test_an_encrypted_wheel(self, tmp_path: Path) -> None:
        wheel = tmp_path / "secret.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("megatron/core/__init__.py", "")
        data = bytearray(wheel.read_bytes())
        for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            data[data.index(mark) + place] |= 1
        wheel.write_bytes(data)
        assert "is encrypted" in self.refused(wheel)

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
