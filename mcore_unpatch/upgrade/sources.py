"""The text of Megatron's functions, release by release: from sources at hand, or downloaded when the user says so."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.megatron.definitions import SourceNames, definitions
from mcore_unpatch.upgrade.releases import Release

# The Pythons that wheels were made for; a wheel's source is the same in all of them.
_PYTHONS = ("3.12", "3.10")


@dataclass
class Sources:
    """Folders that hold `megatron/core`, by release; `fetch` brings one that is missing."""

    folders: dict[str, Path] = field(default_factory=dict)
    fetch: Callable[[str], Path] | None = None

    def has(self, release: str) -> bool:
        """Whether the source of a release is at hand, or can be."""
        return release in self.folders or self.fetch is not None

    def text(self, release: str, name: str) -> str | None:
        """The text of a function in a release, flush left; None where it is not at hand or not there."""
        if release not in self.folders:
            if self.fetch is None:
                return None
            self.folders[release] = self.fetch(release)
        return function_text(self.folders[release], name)


def function_text(folder: Path, name: str) -> str | None:
    """The text of a function below a folder, from `def` on, flush left."""
    found = Release("", (0, 0), SourceNames(folder)).find(name)
    file = SourceNames(folder).source_file(found.name) if found else None
    if found is None or file is None:
        return None
    source = file.read_text(encoding="utf-8")
    module = ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
    for defined, node in definitions(ast.parse(source).body, module):
        if defined == found.name and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return cut(source.splitlines(keepends=True), node)
    return None


def cut(lines: list[str], node: ast.AST) -> str:
    """The lines of a definition, flush left."""
    first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", None)
    return textwrap.dedent("".join(lines[first - 1 : last]))


def cache_folder() -> Path:
    """Where downloads are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mcore-unpatch" / "megatron-core"


def download(release: str) -> Path:
    """Fetch the wheel of a release with pip and unpack its Python files into the cache; nothing of it is run."""
    target = cache_folder() / release
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        said = ""
        for python in _PYTHONS:
            # Not from the current folder, which may hold a module named `pip`.
            command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
            command += [f"--python-version={python}", f"--dest={folder}", f"megatron-core=={release}"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            said = done.stderr.strip()
            if wheels := sorted(Path(folder).glob("*.whl")):
                break
        else:
            raise UsageError(
                f"pip could not download megatron-core {release}; pass its source with --mcore instead. {said[-300:]}"
            )
        unpacked = Path(folder) / "unpacked"
        with zipfile.ZipFile(wheels[0]) as archive:
            names = [name for name in archive.namelist() if name.startswith("megatron/") and name.endswith(".py")]
            archive.extractall(unpacked, names)
        unpacked.replace(target)
    return target
