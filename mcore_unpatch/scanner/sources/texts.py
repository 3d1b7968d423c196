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
_NAME = re.compile(rb"\W++\w++\W++")


def _patterns() -> Iterator[bytes]:
    """A comment, a text, and with a group a text with expressions in it, as far as their braces are plain.

    Each begins with a byte of its own, which is searched for fast.
    """
    yield rb"#[^\n]*+"
    for quote in (b'"', b"'"):
        long, short = (quote * 3, rb"%b(?!%b)|" % (quote, quote * 2), quote), (quote, b"", quote + rb"\n")
        for mark, inner, ends in (long, short):
            start = mark if inner else rb"%b(?!%b)" % (quote, quote * 2)
            unformatted = _FORMATTED.replace(b"(?:(?<=", b"(?<!").replace(b")|(?<=", b")(?<!")[:-1]
            for form in (start + unformatted + _PLAIN, quote + b"(" + start[1:] + _FORMATTED + _WITH_FIELDS + b")"):
                yield form.replace(b"MARK", mark).replace(b"ENDS", ends).replace(b"%", inner)


_TEXT = re.compile(b"|".join(_patterns()), re.DOTALL)


def without_texts(data: bytes) -> bytes:
    """The code of a file without comments and texts; the file as it is where these cannot be told for certain."""
    if _ENCODED.match(data) is not None:
        return data
    code = _TEXT.sub(b"", data)
    # A mark that is left: a text that none of the patterns is for.
    return data if b'"' in code or b"'" in code else code


def telling(data: bytes) -> bytes:
    """The texts of a file that may be names, or that hold expressions."""
    texts = (match for match in _TEXT.finditer(data) if match[0][:1] != b"#")
    return b"\n".join(text[0] for text in texts if text.lastindex is not None or _NAME.fullmatch(text[0]))
