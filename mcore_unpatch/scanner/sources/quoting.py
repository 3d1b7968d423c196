"""The lines of a file as findings quote them: patches that share a statement share its text."""

from __future__ import annotations


class Text:
    """Lines, counted from 1."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._between: dict[tuple[int, int], str] = {}
        self._line, self._encoded, self._offset, self._characters = 0, b"", 0, 0

    def between(self, first: int, last: int) -> str:
        """The text from one line to another."""
        key = (first, last)
        if key not in self._between:
            self._between[key] = "\n".join(self._lines[first - 1 : last])
        return self._between[key]

    def characters(self, line: int, offset: int) -> int:
        """An offset in bytes, as `ast` counts, in characters; counted on from the one asked for last."""
        if line != self._line:
            self._line, self._encoded, self._offset, self._characters = line, self._lines[line - 1].encode(), 0, 0
        first, last = sorted((self._offset, offset))
        passed = len(self._encoded[first:last].decode(errors="replace"))
        self._characters += passed if offset > self._offset else -passed
        self._offset = offset
        return self._characters
