"""Python code without its comments and texts, by its bytes alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

# The first two lines of a file may name an encoding whose letters hold the bytes of quotation marks.
_ENCODED = re.compile(rb"(?:[^\n]*+\n)?[^\n]{0,1000}?coding[:=][ \t]*+(?!utf-?8\b)", re.IGNORECASE)
_FORMATTED = rb"(?:(?<=[fFtT]MARK)|(?<=[fFtT][rR]MARK))"
# What is no end of a text, `%`, and the expressions of one that have no such sign in them.
_PLAIN = rb"[^\\ENDS]*+(?:(?:%\\.)[^\\ENDS]*+)*+MARK"
_WITH_FIELDS = rb"(?:%\\.|\{\{|\}\}|\{(?:%[^{}ENDS])*+(?:\{[^{}ENDS]*+\}(?:%[^{}ENDS])*+)*+\}|[^\\{}ENDS]++)*+MARK"
_LONGEST_NAME = 100
_NAME = re.compile(rb"\W+\w++\W+")


def _patterns() -> Iterator[bytes]:
    """A comment, a text, and as a group a text with expressions in it, as far as their braces are plain."""
    yield rb"#[^\n]*+"
    for quote in (b'"', b"'"):
        long, short = (quote * 3, rb"%b(?!%b)|" % (quote, quote * 2), quote), (quote, b"", quote + rb"\n")
        for mark, inner, ends in (long, short):
            start = mark if inner else rb"%b(?!%b)" % (quote, quote * 2)
            unformatted = _FORMATTED.replace(b"(?:(?<=", b"(?<!").replace(b")|(?<=", b")(?<!")[:-1]
            for form in (start + unformatted + _PLAIN, b"(" + start + _FORMATTED + _WITH_FIELDS + b")"):
                yield form.replace(b"MARK", mark).replace(b"ENDS", ends).replace(b"%", inner)


_TEXT = re.compile(b"|".join(_patterns()), re.DOTALL)


def without_texts(data: bytes) -> tuple[bytes, bytes]:
    """The code of a file with a number for each text and no comments, and the texts that may be names or hold calls.

    The code is the file as it is where that cannot be told for certain.
    """
    said: list[bytes] = []

    def instead(match: re.Match[bytes]) -> bytes:
        text = match[0]
        if match.lastindex is not None or (len(text) < _LONGEST_NAME and _NAME.fullmatch(text)):
            said.append(text)
        return b"" if text[:1] == b"#" else b"0"

    if _ENCODED.match(data) is not None:
        return data, b""
    code = _TEXT.sub(instead, data)
    # A mark that is left: a text that none of the patterns is for.
    return (data, b"") if b'"' in code or b"'" in code else (code, b"\n".join(said))
