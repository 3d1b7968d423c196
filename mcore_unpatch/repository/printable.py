"""Names and source lines on their way to a terminal or a log: no character of theirs acts there."""

from __future__ import annotations

import re

# Control characters; marks that reorder text; characters that end a line for some readers.
_ACTING = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
# What the runners of GitHub and Azure take for a command, wherever it stands in a line or at its start.
_COMMAND = re.compile(r"##(?=\[|vso\[)")


def shown(name: object) -> str:
    """A name in one line: every character that would act is written as its escape."""
    return _ACTING.sub(lambda match: match[0].encode("unicode_escape").decode(), str(name))


def line(text: str) -> str:
    """A whole line of output: the same, and no command for a runner."""
    return re.sub(r"^(\s*):(?=:)", r"\1\\x3a", _COMMAND.sub(r"#\\x23", shown(text)))


def lines(text: str) -> str:
    """A message of several lines: the line ends stay."""
    return "\n".join(map(line, text.split("\n")))
