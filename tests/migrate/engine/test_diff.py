"""A diff is bytes that `git apply` takes, whatever the file and its name are made of."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mcore_unpatch.editing.placing import coloured, unified


@pytest.mark.parametrize("name", [b"plain.py", b"two words.py", b"caf\xc3\xa9.py", b"no text \xff.py"])
@pytest.mark.parametrize(
    ("before", "after"), [(b"a\nb\n", b"a\nc\n"), (b"a\r\nb", b"a\r\nb\n"), (b"\x0ca\xffb\x1c\n", b"\x0ca\xfeb\x1c\n")]
)
def test_git_takes_it(tmp_path: Path, name: bytes, before: bytes, after: bytes) -> None:
    file = tmp_path / name.decode(errors="surrogateescape")
    file.write_bytes(before)
    diff = unified(file.name, before, after)
    subprocess.run(["git", "apply", "-"], input=diff, cwd=tmp_path, check=True)
    assert file.read_bytes() == after


def test_a_line_that_is_frequent_stands_where_it_is() -> None:
    """What difflib does by itself shows it as taken away and put back."""
    lines = [b"    call(", b"        a,", b"    )"] * 100
    diff = unified("a.py", b"\n".join([*lines, b""]), b"\n".join([*lines[:-1], b"        b,", lines[-1], b""]))
    assert diff.split(b"\n")[2:] == [
        b"@@ -297,4 +297,5 @@",
        b"     )",
        b"     call(",
        b"         a,",
        b"+        b,",
        b"     )",
        b"",
    ]


def test_no_difference_no_diff() -> None:
    assert unified("a.py", b"x\n", b"x\n") == b""


def test_on_a_terminal_each_kind_of_line_has_its_colour() -> None:
    lines = {b"--- a/x": b"1", b"+++ b/x": b"1", b"@@ -1 +1 @@": b"36", b"-old": b"31", b"+new": b"32", b" same": b""}
    expected = [b"\x1b[%sm%s\x1b[0m" % (style, line) if style else line for line, style in lines.items()]
    assert coloured(b"\n".join(lines)) == b"\n".join(expected)
