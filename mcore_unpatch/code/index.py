"""The files of a repository: parsed when they are asked for, found by dotted name and by the words they say."""

from __future__ import annotations

import ast
import gc
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from mcore_unpatch.code.module import Module
from mcore_unpatch.code.syntax import last_name

SKIPPED = {".git", "node_modules", ".venv", "venv", "site-packages", "build", "dist", ".tox", "__pycache__"}
_TESTS = re.compile(r"(^|/)(tests?|testing|unit_tests?|functional_tests?)/|(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$")
_MOST_FORGOTTEN = 1_000_000  # bytes of source, before their trees are given back
_MOST_FILES = 25  # that say a name: one that more have is too common to be followed


def is_test(path: str) -> bool:
    """Whether a file is one of tests."""
    return _TESTS.search(path) is not None


class Index:
    """Who has the module of a name, who says a word, who calls a function of a name."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        """The bytes of each Python file by its path, with `/` between folders."""
        self.sources = dict(sorted(sources.items()))
        self.unreadable: dict[str, str] = {}  # files that are no Python 3, and why
        self.linked: set[str] = set()  # parsed files that others lead to: something may point into them
        self._modules: dict[str, Module | None] = {}
        self._forgotten = 0  # bytes of source
        self._found: dict[tuple[str, str], Module | None] = {}
        self._saying: dict[bytes, list[str]] = {}
        self._calls: dict[str, dict[str, list[ast.Call]]] = {}
        self._by_last: dict[str, list[tuple[str, str]]] = {}
        for path in self.sources:
            dotted = dotted_name(path)
            self._by_last.setdefault(dotted.rpartition(".")[2], []).append((path, "." + dotted))

    def module(self, path: str) -> Module | None:
        """The parsed file; nothing for what is no Python 3."""
        if path not in self._modules:
            try:
                self._modules[path] = Module(path, dotted_name(path), self.sources[path])
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                self._modules[path] = None
                self.unreadable[path] = str(error)
        return self._modules[path]

    def parsed(self) -> Iterator[Module]:
        """The files that were parsed until now."""
        return (module for module in list(self._modules.values()) if module is not None)

    def forget(self, path: str) -> None:
        """Let go of a parsed file that nobody leads to; it is parsed anew when somebody does."""
        self._modules.pop(path, None)
        self._forgotten += len(self.sources[path])
        if self._forgotten > _MOST_FORGOTTEN:
            self._forgotten = 0
            gc.collect(0)  # a node and its parent hold each other

    def find(self, dotted: str, near: str) -> Module | None:
        """The module that a name means in a file: the longest common folder wins, then the shortest path."""
        folder = near.rpartition("/")[0]
        key = (dotted, folder)
        if key not in self._found:
            self._found[key] = self._find(dotted, near, folder)
        return self._found[key]

    def _find(self, dotted: str, near: str, folder: str) -> Module | None:
        last, suffix = dotted.rpartition(".")[2], f".{dotted}"
        fits = [path for path, name in self._by_last.get(last, ()) if name.endswith(suffix)]
        if "." not in dotted:  # a lone word: beside the file, or at a root of packages
            roots = [f"{folder}/{last}.py".lstrip("/"), f"{folder}/{last}/__init__.py".lstrip("/")]
            roots += (f"{last}.py", f"{last}/__init__.py", f"src/{last}/__init__.py")
            fits = [path for path in fits if path in roots]
        if not fits:
            return None
        found = min(fits, key=lambda path: (-_common(path, near), len(path), path))
        if found != near:
            self.linked.add(found)
        return self.module(found)

    def saying(self, word: str | bytes) -> list[str]:
        """The files whose text has a word or phrase."""
        phrase = word.encode() if isinstance(word, str) else word
        if phrase not in self._saying:
            self._saying[phrase] = [path for path, source in self.sources.items() if phrase in source]
        return self._saying[phrase]

    def calls(self, name: str, home: str, near: str = "") -> list[ast.Call]:
        """The calls, outside tests, of something whose last name this is; `home`: the file that defines it.

        What too many files say is looked for only in those that also say `near`. A test gives fakes: it tells nothing.
        """
        paths = [path for path in self.saying(f"{name}(") if not is_test(path)]
        if len(paths) > _MOST_FILES:
            paths = [path for path in paths if path == home or (near and near.encode() in self.sources[path])]
        if len(paths) > _MOST_FILES:
            paths = [home] if home in paths else []
        found: list[ast.Call] = []
        for path in paths:
            found += self._calls_in(path).get(name, ())
        return found

    def _calls_in(self, path: str) -> dict[str, list[ast.Call]]:
        if path not in self._calls:
            by_name: dict[str, list[ast.Call]] = {}
            self.linked.add(path)
            module = self.module(path)
            for call in module.calls if module is not None else ():
                by_name.setdefault(last_name(call.func), []).append(call)
            self._calls[path] = by_name
        return self._calls[path]


def read_folder(root: Path) -> dict[str, bytes]:
    """The Python files below a folder, by path; virtual environments and what is built are left out."""
    sources: dict[str, bytes] = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [one for one in folders if one not in SKIPPED and not Path(folder, one, "pyvenv.cfg").exists()]
        for name in files:
            file = Path(folder, name)
            if name.endswith(".py") and file.is_file():
                sources[file.relative_to(root).as_posix()] = file.read_bytes()
    return sources


def dotted_name(path: str) -> str:
    """The dotted name of a file: `a/b/__init__.py` is `a.b`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _common(path: str, near: str) -> int:
    count = 0
    for one, other in zip(path.split("/")[:-1], near.split("/")[:-1], strict=False):
        if one != other:
            break
        count += 1
    return count
