"""Bytes to syntax trees: encodings, limits, and errors in words a user can act on."""

from __future__ import annotations

import io
import re
import symtable
import tokenize
import warnings
from collections.abc import Callable

Reader = Callable[[str], bytes]

# Parsing takes about 40 times a file's size in memory; what people write by hand is far below this.
MAX_BYTES = 4 * 1024 * 1024
# Everything that Python is written in, and a backslash that some encodings take for more.
_ASCII = bytes(range(32, 127)) + b"\\x41\\u0041+AEE-\n\t"
_PYTHON_2 = re.compile(rb"^[ \t]*(print\s+[^(=\s]|exec\s+[^(=\s]|except \w+, ?\w+:|raise \w+, )", re.MULTILINE)
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
    encoding = "UTF-8"
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if _ASCII.decode(encoding, errors="replace") == _ASCII.decode():
            return data.decode(encoding)
    except UnicodeDecodeError as error:
        convert = "declare the encoding or convert the file to UTF-8"
        raise Unreadable(f"not valid {error.encoding} at byte {error.start}; {convert}") from None
    except SyntaxError as error:
        if str(error.msg).startswith("invalid or missing"):
            raise Unreadable("not valid UTF-8; declare the encoding or convert the file") from None
        raise Unreadable(f"unknown encoding: {error.msg}") from None
    except (LookupError, UnicodeError) as error:  # a codec that gives no text, such as rot13
        raise Unreadable(f"unknown encoding: {str(error).partition(';')[0]}") from None
    # What is looked for in the bytes would not be what Python runs.
    raise Unreadable(f"the encoding {encoding} is not supported: convert to UTF-8")


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


def check(data: bytes) -> None:
    """Raise `Unreadable` for a file that is no Python; no tree is built for it."""
    if len(data) > MAX_BYTES:
        raise TooLarge(len(data))
    text = decode(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            symtable.symtable(text, "", "exec")
    except SyntaxError as error:
        if data.startswith(b"version https://git-lfs."):
            raise Unreadable("a Git LFS pointer, not the file itself: run `git lfs pull`") from None
        hint = " (Python 2 code?)" if _PYTHON_2.search(data) else ""
        raise Unreadable(f"syntax error on line {error.lineno}: {error.msg}{hint}") from None
    except (RecursionError, MemoryError):
        raise Unreadable("nested too deeply to be parsed") from None
    except ValueError as error:
        raise Unreadable(f"cannot be parsed: {error}") from None


def with_plain_line_ends(data: bytes) -> bytes:
    """A file as Python reads it, with one sign at the end of each line."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data
