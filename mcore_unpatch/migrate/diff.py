"""Unified diffs of bytes that `git apply` and `patch -p1` take: every byte of the lines is kept."""

from __future__ import annotations

import difflib
import re

_STYLES = {b"@": b"36", b"-": b"31", b"+": b"32"}


def unified(path: str, before: bytes, after: bytes) -> bytes:
    """The difference between two contents of a file; empty if there is none."""
    # One character per byte; only \n ends a line, while str.splitlines would also break at a form feed.
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", data.decode("latin-1")) for data in (before, after))
    name = path.encode(errors="surrogateescape").decode("latin-1")
    end = "\t" if " " in name else ""
    lines = difflib.unified_diff(old, new, f"a/{name}{end}", f"b/{name}{end}")
    return b"".join(_terminated(line.encode("latin-1")) for line in lines)


def _terminated(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"


def coloured(diff: bytes) -> bytes:
    """A diff for a terminal."""
    return b"".join(_coloured(line) for line in diff.splitlines(keepends=True))


def _coloured(line: bytes) -> bytes:
    style = b"1" if line.startswith((b"--- ", b"+++ ")) else _STYLES.get(line[:1])
    if style is None:
        return line
    body = line.rstrip(b"\r\n")
    return b"\x1b[%sm%s\x1b[0m%s" % (style, body, line[len(body) :])
