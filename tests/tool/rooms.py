"""Small repositories for the tests of `code` and `patches`, against Megatron's releases as they are packed."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from textwrap import dedent
from typing import Any

from mcore_unpatch.code.index import Index
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.reached import Guards, Reached
from mcore_unpatch.megatron import packed
from mcore_unpatch.patches.find import Finder
from mcore_unpatch.patches.records import Patch

RELEASES = packed.releases()
Files = str | Mapping[str, str]


def index_of(files: Files) -> Index:
    """An index of some files; a text alone is `a.py`."""
    named = {"a.py": files} if isinstance(files, str) else files
    return Index({path: dedent(text).encode() for path, text in named.items()})


def names_of(files: Files) -> Names:
    """The names of some files."""
    return Names(index_of(files), packed.library())


def found(files: Files) -> list[Patch]:
    """The patches of some files."""
    return Finder(names_of(files)).all()


def last_expression(names: Names, path: str = "a.py") -> Any:
    """The last expression that stands alone in a file, in the order of the text."""
    module = names.index.module(path)
    assert module is not None
    alone = [node for node in ast.walk(module.tree) if isinstance(node, ast.Expr)]
    return max(alone, key=lambda node: node.lineno).value


def reached_on(files: Files, path: str = "a.py") -> str:
    """The releases on which the call of `place()` may be reached: where that is not known, it may."""
    names = names_of(files)
    module = names.index.module(path)
    assert module is not None
    place = next(call for call in module.calls if getattr(call.func, "id", "") == "place")
    guards = Guards(names)
    return span([Reached(guards, release).at(place) for release in RELEASES])


def span(truths: list[bool | None]) -> str:
    """`0.14.0 ... 0.17.1`, `... later`: the first and the last release where something is not false."""
    alive = [number for number, truth in enumerate(truths) if truth is not False]
    if not alive or len(alive) == len(truths):
        return "all" if alive else "none"
    assert alive == list(range(alive[0], alive[-1] + 1))
    ends = ["" if alive[0] == 0 else RELEASES[alive[0]].label, ""]
    ends[1] = "later" if alive[-1] == len(truths) - 1 else RELEASES[alive[-1]].label
    return " ... ".join(ends).strip()
