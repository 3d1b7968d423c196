"""Lines for people: wrapped between words, in colour on a terminal, as plain text in a pipe."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from mcore_unpatch.repository.paths import printable_line

OutputFormat = StrEnum("OutputFormat", "text json sarif github gitlab html")
# A line of output: pieces of text with a style each, "" for none.
Line = list[tuple[str, str]]

_NARROW, _WIDE = 40, 100  # beyond that, lines are hard to read
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_BULLET = re.compile(r"(?:\d+\.|-) ")


def width() -> int:
    """Columns to fill: those of the terminal, 80 in a pipe."""
    return min(max(shutil.get_terminal_size().columns, _NARROW), _WIDE)


def wrapped(text: str, indent: int, mark: str = "", style: str = "", hang: int | None = None) -> Iterator[Line]:
    """A text, each of its lines going on below where it began: behind the mark, or behind the number of a step.

    `hang` is the indent of what goes on, where that is not it.
    """
    for number, line in enumerate(text.split("\n")):
        begin = " " * indent + (mark if number == 0 else " " * len(mark))
        bullet = _BULLET.match(line)
        hanging = " " * (hang if hang is not None else len(begin) + (bullet.end() if bullet else 0))
        pieces = textwrap.wrap(
            line, width(), initial_indent=" " * len(begin), subsequent_indent=hanging, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        for index, piece in enumerate(pieces):
            yield [(begin, style), (piece[len(begin) :], "")] if index == 0 else [(piece, "")]


def show(output: Iterable[Line], stderr: bool = False) -> None:
    """Print lines, in colour on a terminal; nothing in them acts, and nothing is taken for markup."""
    stream = sys.stderr if stderr else sys.stdout
    coloured = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for line in output:
        shown = ""
        for text, style in line if coloured else [("".join(text for text, _ in line), "")]:
            codes = ";".join(_CODES[word] for word in style.split())
            shown += f"\x1b[{codes}m{printable_line(text)}\x1b[0m" if codes else printable_line(text)
        print(shown, file=stream)


def count(number: int, single: str, many: str = "") -> str:
    """`1 file`, `2 files`."""
    return f"{number} {single if number == 1 else many or single + 's'}"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
