"""Every byte outside an edit stays, whatever the file looks like; diffs keep every byte too."""

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from mcore_unpatch.editing.edits import Edit, Plan, Repository, in_order
from mcore_unpatch.editing.placing import changes_of, moved_line, rewrites_of, unified
from mcore_unpatch.migrate.run import Request, migrate
from mcore_unpatch.survey.survey import ScanOptions

PIECES = st.sampled_from(
    [b"\r\n", b"\n", b"\r", b"\x0c", b"\t", b"x = 1", b"# \xc3\xa9", b"\xff", b"'''", b"\\", b" ", b"[int]", b"\x00"]
)
CONTENTS = st.lists(PIECES, max_size=30).map(b"".join)


@st.composite
def edited(draw: st.DrawFn) -> tuple[bytes, list[Edit]]:
    data = draw(CONTENTS)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return data, [
        Edit("f.py", "R", "exact", start, end, draw(CONTENTS), "t")
        for start, end in zip(cuts[::2], cuts[1::2], strict=False)
    ]


@given(edited())
@settings(deadline=None)
def test_bytes_outside_edits_stay_and_spans_find_the_replacements(case: tuple[bytes, list[Edit]]) -> None:
    data, edits = case
    project = Repository(["f.py"], lambda _: True, lambda _: data)
    plan = Plan(tuple(edits))
    (after,) = [item.after for item in rewrites_of(plan, project)] or [data]
    position = 0
    rest = after
    for edit in in_order(edits):
        gap = data[position : edit.start]
        assert rest.startswith(gap + edit.replacement)
        rest = rest[len(gap + edit.replacement) :]
        position = edit.end
    assert rest == data[position:]
    for change in changes_of(plan, project.data):
        assert data[change.before.start : change.before.end] == data[change.edit.start : change.edit.end]
        assert after[change.after.start : change.after.end] == change.edit.replacement
        lines = after.split(b"\n")
        start = sum(len(line) + 1 for line in lines[: change.after.line - 1]) + change.after.column - 1
        assert start == change.after.start


@given(CONTENTS, CONTENTS)
@settings(max_examples=40, deadline=None)
def test_a_diff_brings_the_new_bytes(before: bytes, after: bytes) -> None:
    before, after = before.replace(b"\0", b"?"), after.replace(b"\0", b"?")  # git takes NUL for binary
    if not before or not after:  # an empty side means creation or deletion to git
        return
    diff = unified("a folder/f.py", before, after)
    assert bool(diff) == (before != after)
    if diff:
        with tempfile.TemporaryDirectory() as name:
            file = Path(name, "a folder/f.py")
            file.parent.mkdir()
            file.write_bytes(before)
            command = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-"]
            subprocess.run(command, cwd=name, input=diff, check=True, capture_output=True)
            assert file.read_bytes() == after


@pytest.mark.parametrize(
    "data",
    [
        b"OLD = 1",
        b"\xef\xbb\xbfOLD = 1\r\n\r\n\x0c\r\nx = 'a'\r\n",
        b"# -*- coding: latin-1 -*-\nname = '\xe9'\nOLD = 1\n",
        b"# coding: cp1252\r\nname = '\x80'\r\nOLD = 1",
        b"x = 1\r\ny = 2\nOLD = 3\n\x0c\n\n\n",
    ],
)
def test_files_on_disk(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "repo" / "f.py"
    file.parent.mkdir()
    file.write_bytes(data)
    file.chmod(0o740)

    def rename(project: Repository, *_: object) -> Plan:
        start = project.data("f.py").find(b"OLD")
        return Plan((Edit("f.py", "R", "exact", start, start + 3, b"NEW", "t"),) if start >= 0 else ())

    migrate(Request([file.parent], ScanOptions(jobs=1), allow_no_vcs=True), rename)
    assert file.read_bytes() == data.replace(b"OLD", b"NEW")
    assert file.stat().st_mode & 0o777 == 0o740


def test_lines_move_with_the_edits_above_them() -> None:
    data = b"a\nb\nc\nd\n"

    def edit(start: int, end: int, text: bytes) -> Edit:
        return Edit("f.py", "R", "exact", start, end, text, "t")

    assert [moved_line(data, [], line) for line in (1, 4, 9)] == [1, 4, 9]
    assert [moved_line(data, [edit(2, 2, b"x\ny\n")], line) for line in (1, 2, 3, 9)] == [1, 4, 5, 11]
    assert [moved_line(data, [edit(2, 6, b"")], line) for line in (1, 2, 3, 4)] == [1, 2, 2, 2]
    assert [moved_line(data, [edit(0, 2, b"1\n2\n"), edit(4, 5, b"C")], line) for line in (1, 2, 3, 4)] == [1, 3, 4, 5]
