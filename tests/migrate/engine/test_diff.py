"""A diff is bytes that `git apply` takes, whatever the file and its name are made of."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mcore_unpatch.migrate.diff import unified


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


def test_no_difference_no_diff() -> None:
    assert unified("a.py", b"x\n", b"x\n") == b""
