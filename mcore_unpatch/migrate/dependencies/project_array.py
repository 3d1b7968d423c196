"""`project.dependencies`, `project.optional-dependencies` and `dependency-groups` of a pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcore_unpatch.migrate.dependencies.bracketed import Bracketed, with_item
from mcore_unpatch.migrate.dependencies.listing import Listing
from mcore_unpatch.migrate.dependencies.toml_text import assignments

_MAIN = ("project", "dependencies")
_OPTIONAL = ("project", "optional-dependencies")
_GROUPS = "dependency-groups"


class ProjectArray(Listing):
    """An array of requirements."""

    def __init__(self, file: Path, text: str, key: tuple[str, ...], array: Bracketed) -> None:
        self.key, self.array = key, array
        inside = [(start + 1, end - 1) for start, end in array.items]
        super().__init__(file, text, self.meaning(text)[0], inside, key == _MAIN)

    def meaning(self, text: str) -> tuple[list[str], object]:
        """The strings of the array, and the file without it."""
        data: Any = tomllib.loads(text)
        table = data
        for key in self.key[:-1]:
            table = table[key]
        listed = table.pop(self.key[-1])
        others = [item for item in listed if not isinstance(item, str)]  # a group that takes in another
        return [item for item in listed if isinstance(item, str)], (data, others)

    def _with_requirement(self, requirement: str) -> str:
        return with_item(self.text, self.array, requirement)


def project_arrays(file: Path, text: str) -> Iterator[ProjectArray]:
    """Those of a file."""
    for one in assignments(text):
        if one.array and (one.key == _MAIN or one.key[:2] == _OPTIONAL or one.key[0] == _GROUPS):
            yield ProjectArray(file, text, one.key, one.array)
