"""The text of Megatron's functions, release by release: from sources at hand, or fetched when the user says so."""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.library.sources import Files, cache_folder, read_source
from mcore_unpatch.library.syntax import Function, statements
from mcore_unpatch.megatron.versions import LIBRARY
from mcore_unpatch.stacks.sources import MegatronSource, installed_source

# The Pythons that wheels were made for; a wheel's source is the same in all of them.
_PYTHONS = ("3.12", "3.10")


@dataclass
class Sources:
    """The files of some releases; `fetch` brings one that is missing."""

    known: dict[str, Files] = field(default_factory=dict)
    fetch: Callable[[str], Files] | None = None

    def files(self, release: str) -> Files | None:
        """The files of a release: given, in the cache, or fetched; None where they are not to be had."""
        if release not in self.known:
            if (kept := cached(release)).is_dir():
                self.known[release] = read_source(kept, LIBRARY)
            elif self.fetch is not None:
                self.known[release] = self.fetch(release)
        return self.known.get(release)

    def text(self, release: str, name: str) -> str | None:
        """The text of a function in a release, flush left; None where it is not at hand or not there."""
        files = self.files(release) or {}
        path, node = _definition(files, name)
        return cut(files[path].decode().splitlines(keepends=True), node) if isinstance(node, Function) else None


def here(source: MegatronSource | None) -> Sources:
    """What is at hand without asking anybody: a source that was given, the installed one, and the cache."""

    def installed(release: str) -> Files:
        found = installed_source()
        return found.files if found is not None and found.label == release else {}

    return Sources({source.label: source.files} if source is not None else {}, installed)


def _definition(files: Files, name: str) -> tuple[str, ast.AST | None]:
    """The file and the node that define a name, which is the one it is defined under."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        folder = "/".join(parts[:length])
        for path in (f"{folder}.py", f"{folder}/__init__.py"):
            if path in files:
                node: ast.AST | None = ast.parse(files[path])
                for part in parts[length:]:
                    body = statements(getattr(node, "body", ()))
                    node = next((item for item in body if getattr(item, "name", "") == part), None)
                if node is not None:
                    return path, node
    return "", None


def diff(before: str, after: str, old: str, new: str) -> str:
    """A unified diff of two texts under their labels."""
    return "".join(unified_diff(before.splitlines(True), after.splitlines(True), old, new))


def cut(lines: list[str], node: ast.AST) -> str:
    """The lines of a definition, flush left."""
    first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", None)
    return textwrap.dedent("".join(lines[first - 1 : last]))


def cached(release: str) -> Path:
    """Where the source of a release is kept."""
    return cache_folder() / LIBRARY.distribution / release


def fetch(release: str) -> Files:
    """Get the wheel of a release with pip and keep its Python files in the cache; nothing of it is run."""
    target = cached(release)
    if target.is_dir():
        return read_source(target, LIBRARY)
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
            failed = f"pip could not download megatron-core {release}; name a checkout or a wheel instead."
            raise UsageError(f"{failed} {said[-300:]}")
        unpacked = Path(folder) / "unpacked"
        with zipfile.ZipFile(wheels[0]) as archive:
            names = [name for name in archive.namelist() if name.startswith("megatron/") and name.endswith(".py")]
            archive.extractall(unpacked, names)
        unpacked.replace(target)
    return read_source(target, LIBRARY)
