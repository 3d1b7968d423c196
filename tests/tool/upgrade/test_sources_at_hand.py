"""Megatron's source that is at hand: the text of a name in it, and which release stands in for one that is not."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checking import write_files

from mcore_unpatch.commands import upgrade
from mcore_unpatch.errors import UsageError
from mcore_unpatch.stacks import at_hand as sources
from mcore_unpatch.upgrade.matrix import releases_of

FILES = {
    "megatron/core/a.py": b"def f(x):\n    return x\n\nif True:\n    class C:\n        n = 1\n        m: int = 2\n"
    b"        o = p = [3]\n        @staticmethod\n        def g():\n            return 2\n",
    "megatron/core/b/__init__.py": b"async def h(): ...\n",
    "megatron/core/b/c.py": b"def h(): ...\nx = 3\n",
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("megatron.core.a.f", "def f(x):\n    return x\n"),
        ("megatron.core.a.C.g", "def g():\n    return 2\n"),
        ("megatron.core.b.h", "async def h(): ...\n"),
        ("megatron.core.b.c.h", "def h(): ...\n"),
        ("megatron.core.b.c.x", None),
        ("megatron.core.a.C", None),
        ("megatron.core.a.none", None),
        ("megatron.core.a.C.none", None),
        ("megatron.core.none.f", None),
        ("none", None),
    ],
)
def test_the_text_of_a_function(name: str, text: str | None) -> None:
    assert sources.Sources({"0.12.0": FILES}).text("0.12.0", name) == text


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache; nothing is installed."""
    monkeypatch.setattr(sources, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(sources, "installed_source", lambda: None)
    return sources.cached("0.12.0").parent


def test_a_release_that_is_not_at_hand_has_no_text(kept: Path) -> None:
    nothing = sources.Sources()
    assert (nothing.files("0.12.0"), nothing.text("0.12.0", "megatron.core.a.f")) == (None, None)
    fetched = sources.Sources(fetch=lambda release: {f"megatron/{release}.py": b""})
    assert fetched.files("0.12.0") == fetched.files("0.12.0") == {"megatron/0.12.0.py": b""}
    write_files(kept / "0.12.1", FILES)
    assert sources.Sources().text("0.12.1", "megatron.core.b.h") == "async def h(): ...\n"


@pytest.mark.parametrize(
    ("text", "releases", "main"),
    [
        ("0.12.1..0.12.1", ["0.12.1"], False),
        ("0.12.0..0.12.1", ["0.12.0", "0.12.1"], False),
        ("v0.12.1..v0.12.2", ["0.12.1", "0.12.2"], False),
        ("0.19.2..main", ["0.19.2"], True),
    ],
)
def test_a_range_of_releases(text: str, releases: list[str], main: bool) -> None:
    assert releases_of(text) == (releases, main)


@pytest.mark.parametrize("text", ["0.12", "0.12.1..0.12.0", "0.19..0.18", "0.1..0.18", "..", "0.18..", "..main"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(UsageError):
        releases_of(text)


@pytest.mark.parametrize("download", [False, True])
@pytest.mark.parametrize(
    ("copies", "given", "told"),
    [
        ([], [], ""),
        ([], ["0.12.3"], ""),
        (["0.12.0"], ["0.12.0", "0.12.3"], ""),
        (["0.12.0"], ["0.12.3"], "The source of megatron-core 0.12.0 is missing, so copies are not compared"),
        (
            ["0.13.0"],
            ["0.12.3"],
            "The source of megatron-core 0.13.0 is missing, so copies are not compared",
        ),
        (["0.12.0"], [], "The sources of megatron-core 0.12.0, 0.12.3 are missing, so copies are not compared"),
    ],
)
def test_what_is_said_of_sources_that_copies_need(
    copies: list[str], given: list[str], told: str, download: bool, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fates = [SimpleNamespace(copy=SimpleNamespace(release=release)) for release in copies]
    labels = {"old": SimpleNamespace(label="0.12.0"), "new": SimpleNamespace(label="0.12.3")}
    outcome: Any = SimpleNamespace(fates=[SimpleNamespace(copy=None), *fates], **labels)
    at_hand: Any = [SimpleNamespace(label=release, files=FILES) for release in given]
    found = upgrade._sources(outcome, at_hand, download)
    said = " ".join(capsys.readouterr().err.split())
    assert (told in said) if told and not download else said == ""
    assert (found.fetch is not None) is download
    assert set(given) <= found.known.keys()
