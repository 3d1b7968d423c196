"""Classes of a repository that derive from others, by their names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress

from mcore_unpatch.codemods.syntax import leaf
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.edits import Repository, as_name
from mcore_unpatch.editing.source import Source
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.sources.parsing import Unreadable

_HEADER = re.compile(rb"class[ \t]++\w++[ \t]*+\(([^()]*+(?:\([^()]*+\)[^()]*+)*+)")
_WORD, _RENAMED = re.compile(rb"[^\W\d]\w*+"), re.compile(rb"(\w++)[ \t]++as[ \t]++(\w++)")


def derived(family: set[str], files: Workbench) -> Iterator[tuple[Source, ast.ClassDef]]:
    """The classes of the repository that derive from some, by their names."""
    headers, waiting = files.once(_headers), sorted(family)
    while waiting:
        name = waiting.pop()
        for source in filter(None, map(files.readable, headers.get(name, ()))):
            imports = (alias for node in source.every(ast.ImportFrom) for alias in node.names if alias.name == name)
            names = {name, *(alias.asname for alias in imports if alias.asname)}
            for cls in source.every(ast.ClassDef):
                if names & set(map(leaf, cls.bases)):
                    yield source, cls
                    waiting += [cls.name] if cls.name not in family else []
                    family.add(cls.name)


def _headers(files: Repository) -> dict[str, list[str]]:
    """For each word between the brackets of a class the files that have it there, also as another name; read once."""
    found: dict[str, list[str]] = {}
    for path in files.paths:
        if path.endswith(".py") and not is_test(path):
            with suppress(Unreadable, OSError):
                data = files.data(path)
                words = {word for match in _HEADER.finditer(data) for word in _WORD.findall(match[1])}
                words |= {match[1] for match in _RENAMED.finditer(data) if match[2] in words} if words else set()
                for word in words:
                    found.setdefault(word.decode(), []).append(path)
    return found


def relatives(cls: ast.ClassDef, files: Workbench) -> Iterator[tuple[Source, ast.ClassDef]]:
    """The classes that derive from one, and those that it derives from."""
    yield from derived({cls.name}, files)
    names, waiting = {cls.name}, [cls]
    while waiting:
        bases = {leaf(base) for base in waiting.pop().bases} - names - {""}
        names |= bases
        for base in bases:
            for source in files.sources_saying(as_name(base)):
                for one in source.every(ast.ClassDef):
                    if one.name == base:
                        waiting.append(one)
                        yield source, one
