"""`[tool.mcore-unpatch]` of the nearest pyproject.toml, found from the scanned path upwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcore_unpatch import git, reading
from mcore_unpatch.errors import UsageError
from mcore_unpatch.printable import shown

_LISTS = ("select", "ignore", "exclude")
_TEXTS = ("target-mcore", "baseline", "base", "output-format")
_NUMBERS = ("jobs",)


@dataclass(frozen=True, slots=True)
class Config:
    """Settings from a file; `folder` is where it stands, and what its paths are relative to."""

    folder: Path | None = None
    values: dict[str, Any] = field(default_factory=dict)

    def list(self, key: str) -> list[str]:
        """A list of strings, empty where the file says nothing."""
        return list(self.values.get(key, ()))

    def text(self, key: str) -> str | None:
        """A string, None where the file says nothing."""
        return self.values.get(key)


def load(start: Path, read: Callable[[Path], bytes | None] | None = None) -> Config:
    """The configuration that governs a path; raises `UsageError` if it cannot be read. `read` is for other trees."""
    folder = start if start.is_dir() else start.parent
    for candidate in (folder, *folder.parents):
        file = candidate / "pyproject.toml"
        data = (read or _bytes)(file)
        table = None if data is None else table_of(data, file)
        if table is not None:
            return Config(candidate, _checked(file, table))
    return Config()


def load_at(start: Path, top: Path, revision: str) -> Config:
    """The configuration that governed a path in a commit."""

    def read(file: Path) -> bytes | None:
        inside = file.is_relative_to(top)
        return git.file_at(top, revision, file.relative_to(top).as_posix()) if inside else _bytes(file)

    return load(start, read)


def _bytes(file: Path) -> bytes | None:
    try:
        return reading.read_below(reading.boundary(file.parent), file)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{shown(file)} cannot be read: {error.strerror}") from None


def table_of(text: bytes, file: Path) -> dict[str, Any] | None:
    """`[tool.mcore-unpatch]` of the bytes of a file, if it has one; raises `UsageError`."""
    import tomllib

    try:
        data = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{shown(file)} is not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{shown(file)} is nested too deeply to be read") from None
    tool = data.get("tool", {})
    table = tool.get("mcore-unpatch") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{file}: [tool.mcore-unpatch] must be a table")
    return table


def _checked(file: Path, table: dict[str, Any]) -> dict[str, Any]:
    for key, value in table.items():
        if key in _LISTS:
            fits = isinstance(value, list) and all(isinstance(item, str) for item in value)
            wanted = "a list of strings"
        elif key in _TEXTS:
            fits, wanted = isinstance(value, str), "a string"
        elif key in _NUMBERS:
            fits, wanted = isinstance(value, int) and not isinstance(value, bool) and value > 0, "a positive number"
        else:
            known = ", ".join((*_LISTS, *_TEXTS, *_NUMBERS))
            raise UsageError(f"{file}: unknown key {key!r} in [tool.mcore-unpatch]; use one of {known}")
        if not fits:
            raise UsageError(f"{file}: {key} in [tool.mcore-unpatch] must be {wanted}")
    return table
