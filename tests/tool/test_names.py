"""One name, one thing: no class of the three packages has the name of another."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The new rooms stand beside the old ones that they replace, and name the same things.
ROOMS = ("code", "patches", "effects", "say")
FILES = ("interface", "released", "one_release", "detailed", "signatures")
NEW = (*(f"mcore_unpatch/{name}/" for name in ROOMS), *(f"mcore_unpatch/library/{name}" for name in FILES))
FOLDERS = [ROOT / name for name in ("mcore_unpatch", "codemods", "compat")]


@pytest.mark.skipif(not FOLDERS[1].is_dir(), reason="reads the folders of a checkout")
def test_no_class_name_stands_twice() -> None:
    places: defaultdict[tuple[str, bool], list[str]] = defaultdict(list)
    for file in (file for folder in FOLDERS for file in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_"), file.relative_to(ROOT).as_posix().startswith(NEW)].append(
                    f"{file.relative_to(ROOT)}:{node.lineno}"
                )
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
