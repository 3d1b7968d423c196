"""Unified diffs of bytes that `git apply` and `patch -p1` take: every byte of the lines is kept."""

from __future__ import annotations

import difflib
import re

from mcore_unpatch.repository.paths import shown

_STYLES = {b"@": b"36", b"-": b"31", b"+": b"32"}


def unified(path: str, before: bytes, after: bytes) -> bytes:
    """The difference between two contents of a file; empty if there is none."""
    # One character per byte; only \n ends a line, while str.splitlines would also break at a form feed.
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", data.decode("latin-1")) for data in (before, after))
    name = path.encode(errors="surrogateescape").decode("latin-1")
    end = "\t" if " " in name else ""
    lines = difflib.unified_diff(old, new, f"a/{name}{end}", f"b/{name}{end}")
    ended = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return b"".join(line.encode("latin-1") for line in ended)


def coloured(diff: bytes) -> bytes:
    """A diff for a terminal."""
    return b"\n".join(map(_coloured, diff.split(b"\n")))


def _coloured(line: bytes) -> bytes:
    """The line as text that does nothing; the end of a CRLF line is not shown."""
    harmless = shown(line.removesuffix(b"\r").decode(errors="backslashreplace")).encode()
    style = b"1" if harmless.startswith((b"--- ", b"+++ ")) else _STYLES.get(harmless[:1])
    return harmless if style is None else b"\x1b[%sm%s\x1b[0m" % (style, harmless)
