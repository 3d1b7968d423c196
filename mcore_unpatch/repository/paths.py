"""Paths and other texts on their way to a terminal or a log, where no character of theirs acts; and test files."""

from __future__ import annotations

import os
import re
from pathlib import Path

# Control characters; marks that reorder text; characters that end a line for some readers.
_ACTING = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
# What the runners of GitHub and Azure take for a command, wherever it stands in a line or at its start.
_COMMAND = re.compile(r"##(?=\[|vso\[)")


def shown(name: object) -> str:
    """A name in one line: every character that would act is written as its escape."""
    return _ACTING.sub(lambda match: match[0].encode("unicode_escape").decode(), str(name))


def printable_line(text: str) -> str:
    """A whole line of output: the same, and no command for a runner."""
    return re.sub(r"^(\s*):(?=:)", r"\1\\x3a", _COMMAND.sub(r"#\\x23", shown(text)))


def printable_lines(text: str) -> str:
    """A message of several lines: the line ends stay."""
    return "\n".join(map(printable_line, text.split("\n")))


def relative(path: Path, start: Path) -> str:
    """A path as seen from a folder, with forward slashes."""
    return Path(os.path.relpath(path, start)).as_posix()


def from_here(path: Path) -> str:
    """A path as people read it: relative to where they stand, or whole where that is shorter; nothing in it acts."""
    return shown(min(relative(path, Path.cwd()), path.as_posix(), key=len))


def is_test(path: str) -> bool:
    """Whether a file (posix, relative to the project's root) is a test or a helper of tests."""
    *folders, name = path.split("/")
    named = name.startswith(("test_", "conftest")) or name.endswith("_test.py")
    return named or "tests" in folders or "test" in folders
