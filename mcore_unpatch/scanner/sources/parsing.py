"""Bytes to syntax trees: encodings, limits, and errors in words a user can act on."""

from __future__ import annotations

import ast
import io
import re
import symtable
import tokenize
import warnings
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Parsing takes about 40 times a file's size in memory; what people write by hand is far below this.
MAX_BYTES = 4 * 1024 * 1024
# Everything that Python is written in, and a backslash that some encodings take for more.
_ASCII = bytes(range(32, 127)) + b"\\x41\\u0041+AEE-\n\t"
# Beyond this a file is not even read.
MAX_READ = 64 * 1024 * 1024


class Unreadable(Exception):
    """A file that cannot be analysed; the message says why."""


class TooLarge(Unreadable):
    """A file of too many bytes; `matters` unless it is known to say nothing of Megatron."""

    def __init__(self, size: int, matters: bool = True) -> None:
        super().__init__(
            f"{size / 1024 / 1024:.0f} MB is over the limit of {MAX_BYTES >> 20} MB; exclude generated files"
        )
        self.matters = matters


def decode(data: bytes) -> str:
    """The text of a Python file, by its byte order mark, its encoding cookie, or UTF-8."""
    if b"\0" in data:
        raise Unreadable("contains NUL bytes, so it is not Python source")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if not _keeps_ascii(encoding):  # what the prefilter reads would not be what Python runs
            raise Unreadable(f"the encoding {encoding} is not supported: convert to UTF-8")
        return data.decode(encoding)
    except SyntaxError as error:
        if str(error.msg).startswith("invalid or missing"):
            raise Unreadable("not valid UTF-8; declare the encoding or convert the file") from None
        raise Unreadable(f"unknown encoding: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise Unreadable(
            f"not valid {error.encoding} at byte {error.start}; declare the encoding or convert the file to UTF-8"
        ) from None
    except (LookupError, UnicodeError) as error:  # a codec that gives no text, such as rot13
        raise Unreadable(f"unknown encoding: {str(error).partition(';')[0]}") from None


def _keeps_ascii(encoding: str) -> bool:
    try:
        return _ASCII.decode(encoding) == _ASCII.decode()
    except UnicodeError:
        return False


def parse(data: bytes) -> ast.Module:
    """The syntax tree of a Python file."""
    return _read(data, ast.parse)


def check(data: bytes) -> None:
    """Raise `Unreadable` for a file that is no Python; faster than `parse`, since no tree is built for it."""
    _read(data, lambda text: symtable.symtable(text, "", "exec"))


def why_not(data: bytes, path: str) -> str | None:
    """Why a file does not compile; None if it does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{error.msg}, line {error.lineno}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or "it is nested too deeply"
    return None


def _read(data: bytes, reader: Callable[[str], T]) -> T:
    if len(data) > MAX_BYTES:
        raise TooLarge(len(data))
    text = decode(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return reader(text)
    except SyntaxError as error:
        if data.startswith(b"version https://git-lfs."):
            raise Unreadable("a Git LFS pointer, not the file itself: run `git lfs pull`") from None
        hint = " (Python 2 code?)" if _looks_like_python_2(data) else ""
        raise Unreadable(f"syntax error on line {error.lineno}: {error.msg}{hint}") from None
    except (RecursionError, MemoryError):
        raise Unreadable("nested too deeply to be parsed") from None
    except ValueError as error:
        raise Unreadable(f"cannot be parsed: {error}") from None


def _looks_like_python_2(data: bytes) -> bool:
    return (
        re.search(rb"^[ \t]*(print\s+[^(=\s]|exec\s+[^(=\s]|except \w+, ?\w+:|raise \w+, )", data, re.MULTILINE)
        is not None
    )
