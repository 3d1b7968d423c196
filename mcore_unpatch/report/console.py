"""Rich's console as every report uses it: nothing in a text is taken for markup, and nothing in it acts."""

from __future__ import annotations

from typing import Any, NoReturn

from rich.console import Console
from rich.text import Text

from mcore_unpatch.repository import printable


class PlainConsole(Console):
    """Lines go out whole, whatever the width of the terminal is thought to be."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts, with every character that would act on the terminal as its escape."""
        super().print(*(_harmless(one) if isinstance(one, Text) else one for one in objects), **options)

    def on_broken_pipe(self) -> NoReturn:
        """Left to the command, which knows what it has done so far; Rich would end the process with exit code 1."""
        raise BrokenPipeError


def _harmless(text: Text) -> Text:
    """The text itself, or without colours where something in it had to be escaped."""
    escaped = printable.lines(text.plain)
    return text if escaped == text.plain else Text(escaped)
