"""The Python that a project says it runs on, against the one that the dependency needs."""

from __future__ import annotations

import ast
import configparser
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NEEDED = (3, 12)  # by the extra; the tool alone runs on 3.11
_OLDEST = 6
_CARET = re.compile(r"([\^~])(\d+)(?:\.(\d+))?[\w.]*")


def too_old(root: Path, top: Path) -> str:
    """What the nearest project file says, where it allows an older Python than the dependency; else nothing."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    folders = [root, *(folder for folder in root.parents if folder == top or top in folder.parents)]
    for file, said in (found for folder in folders for found in _said(folder)):
        try:
            allowed = SpecifierSet(_plain(said))
        except InvalidSpecifier:
            continue
        older = [minor for minor in range(_OLDEST, NEEDED[1]) if f"3.{minor}.99" in allowed]
        return f"{file.relative_to(top).as_posix()} says Python {said}" if older else ""
    return ""


def _said(folder: Path) -> Iterator[tuple[Path, str]]:
    """`requires-python` in whichever file and format."""
    for name, read in (("pyproject.toml", _of_toml), ("setup.cfg", _of_cfg), ("setup.py", _of_py)):
        try:
            text = (folder / name).read_text(encoding="utf-8") if (folder / name).is_file() else ""
            said = read(text) if text else None
        except (OSError, ValueError, SyntaxError, configparser.Error):
            continue
        if isinstance(said, str) and said.strip():
            yield folder / name, said.strip()


def _of_toml(text: str) -> Any:
    data: Any = tomllib.loads(text)
    poetry = data.get("tool", {}).get("poetry", {}).get("dependencies", {}).get("python")
    return data.get("project", {}).get("requires-python") or poetry


def _of_cfg(text: str) -> Any:
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    return parser.get("options", "python_requires", fallback=None)


def _of_py(text: str) -> Any:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.keyword) and node.arg == "python_requires" and isinstance(node.value, ast.Constant):
            return node.value.value
    return None


def _plain(said: str) -> str:
    """Poetry's `^3.10` and `~3.10` as specifiers."""
    parts = []
    for part in filter(None, (one.strip() for one in said.split(","))):
        match = _CARET.fullmatch(part)
        if match is None:
            parts.append(f"=={part}.*" if part[0].isdigit() else part)
        else:
            after = f"{int(match[2]) + 1}" if match[1] == "^" else f"{match[2]}.{int(match[3] or 0) + 1}"
            parts.append(f">={part[1:]},<{after}")
    return ",".join(parts)
