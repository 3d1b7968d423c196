"""Lines for people: wrapped between words, in colour on a terminal, as plain text in a pipe."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from mcore_unpatch.repository import printable

# A line of output: pieces of text with a style each, "" for none.
Line = list[tuple[str, str]]

_NARROW, _WIDE = 40, 100  # beyond that, lines are hard to read
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
    """Print lines; nothing in them is taken for markup, so brackets in code stay."""
    stream = sys.stderr if stderr else sys.stdout
    if not stream.isatty():
        for line in output:
            print(printable.line("".join(text for text, _ in line)), file=stream)
        return
    from rich.text import Text

    from mcore_unpatch.report.console import PlainConsole

    console = PlainConsole(stderr=stderr)
    for line in output:
        console.print(Text.assemble(*line))


def count(number: int, one: str, many: str = "") -> str:
    """`1 file`, `2 files`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
