"""`[tool.unpatch]` of the nearest pyproject.toml, found from the scanned path upwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcore_unpatch.errors import UsageError
from mcore_unpatch.records import field, record
from mcore_unpatch.repository import git, reading
from mcore_unpatch.repository.paths import shown

_TABLE = "unpatch"
_WANTED = dict.fromkeys(("megatron", "select", "ignore", "exclude"), "a list of strings")
_WANTED |= dict.fromkeys(("target-mcore", "baseline", "base", "output-format"), "a string")
_WANTED |= {"jobs": "a positive number"}


@record
class Config:
    """Settings from a file; `folder` is where it stands, and what its paths are relative to."""

    folder: Path | None = None
    values: dict[str, Any] = field(default_factory=dict)
    misspelt: tuple[str, ...] = ()  # tables that may be meant for us, and are not read

    @property
    def file(self) -> Path:
        """The file that it stands in."""
        return (self.folder or Path()) / "pyproject.toml"

    @property
    def notes(self) -> list[str]:
        """What a user should change in it."""
        own = f"the name of this tool's table is [tool.{_TABLE}]"
        return [f"[tool.{name}] is not read; {own}." for name in self.misspelt]

    def list(self, key: str) -> list[str]:
        """A list of strings, empty where the file says nothing."""
        return list(self.values.get(key, ()))

    def text(self, key: str) -> str | None:
        """A string, None where the file says nothing."""
        return self.values.get(key)


def load(start: Path, read: Callable[[Path], bytes | None] | None = None) -> Config:
    """The configuration that governs a path; raises `UsageError` if it cannot be read. `read` is for other trees."""
    folder = start if start.is_dir() else start.parent
    misspelt: list[str] = []
    for candidate in (folder, *folder.parents):
        file = candidate / "pyproject.toml"
        data = (read or _bytes)(file)
        if data is not None and (table := table_of(data, file, misspelt)) is not None:
            return Config(candidate, _checked(file, table), tuple(misspelt))
    return Config(misspelt=tuple(misspelt))


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


def table_of(text: bytes, file: Path, misspelt: list[str] | None = None) -> dict[str, Any] | None:
    """The table of this tool in the bytes of a file, if it has one; raises `UsageError`.

    `misspelt` takes the names of tables that look like ours.
    """
    import tomllib
    from difflib import get_close_matches

    try:
        data = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, a number of thousands of digits
        raise UsageError(f"{shown(file)} is not valid TOML: {error}") from None
    tool = data.get("tool")
    tool = tool if isinstance(tool, dict) else {}
    if misspelt is not None:
        near = get_close_matches(_TABLE, map(str.lower, tool), cutoff=0.8)
        misspelt += [name for name in tool if name != _TABLE and (_TABLE in name or name.lower() in near)]
    if not isinstance(tool.get(_TABLE, {}), dict):
        raise UsageError(f"{file}: [tool.{_TABLE}] must be a table")
    return tool.get(_TABLE)


def _checked(file: Path, table: dict[str, Any]) -> dict[str, Any]:
    for key, value in table.items():
        if key not in _WANTED:
            raise UsageError(f"{file}: unknown key {key!r} in [tool.{_TABLE}]; use one of {', '.join(_WANTED)}")
        fits = {
            "a list of strings": isinstance(value, list) and all(isinstance(item, str) for item in value),
            "a string": isinstance(value, str),
            "a positive number": type(value) is int and value > 0,
        }
        if not fits[_WANTED[key]]:
            raise UsageError(f"{file}: {key} in [tool.{_TABLE}] must be {_WANTED[key]}")
    return table
