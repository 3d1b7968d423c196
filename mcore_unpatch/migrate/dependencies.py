"""Whether the Python of a repository is new enough for what the new code needs."""

from __future__ import annotations

import re
from pathlib import Path

from mcore_unpatch.repository import reading

OLDEST_PYTHON = 12  # what the shims need: the tool alone runs on 3.11
_COMMENT = re.compile(r"(?m)(?:^|\s)#.*$")
_PYTHON = re.compile(
    r"""(?<![\w.-])(?:requires-python|python_requires|python)\s*=\s*(?:"([^"\n]+)"|'([^'\n]+)'|([<>=~^\d][^\n]*))"""
)


def too_old_python(root: Path, top: Path) -> str:
    """What the nearest project file says, where it allows an older Python than the dependency; else nothing."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    for folder in [root, *(above for above in root.parents if above == top or top in above.parents)]:
        for name in ("pyproject.toml", "setup.cfg", "setup.py"):
            stated = _PYTHON.search(_text(folder / name))
            said = next(filter(None, stated.groups()), "").strip() if stated else ""
            try:
                allowed = SpecifierSet(_plain(said)) if said else None
            except InvalidSpecifier:
                continue
            if allowed is not None:
                older = any(f"3.{minor}.99" in allowed for minor in range(6, OLDEST_PYTHON))
                return f"{(folder / name).relative_to(top).as_posix()} says Python {said}" if older else ""
    return ""


def _plain(said: str) -> str:
    """Poetry's `^3.10`, `~3.10` and `3.10` as specifiers of what they begin with: the lower end decides here."""
    parts = (re.sub(r"^[\^~](?=\d)", ">=", part) for part in filter(None, map(str.strip, said.split(","))))
    return ",".join(f"=={part}.*" if part[0].isdigit() else part for part in parts)


def _text(file: Path) -> str:
    """The text of a file without its comments; none of one that is not there, a link, or not in UTF-8."""
    try:
        return _COMMENT.sub("", reading.read_own(file).decode())
    except (OSError, UnicodeDecodeError):
        return ""
