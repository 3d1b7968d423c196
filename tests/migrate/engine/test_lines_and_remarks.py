"""What came of a migration: where lines stand now, the order of remarks, what is depended on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sample_repository import Sample, planner as rewriting

from mcore_unpatch.editing.edits import Edit, NewContent, Options, Plan, Remark, Repository, splice
from mcore_unpatch.editing.placing import moved_line
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.migrate.outcome import Dependency, Outcome
from mcore_unpatch.migrate.run import Request, preview
from mcore_unpatch.survey.survey import ScanOptions

FILE = b"one\ntwo\nthree\nfour\n"
EDIT = Edit("a.py", "MCU501", "exact", 4, 8, b"2\n2\n2\n", "title", finding_line=2, notes=("mind this",))


def outcome(written: bool = False, edits: tuple[Edit, ...] = (), **plan: Any) -> Outcome:
    """One of a repository with a.py alone."""

    def read(path: str) -> bytes:
        if path != "a.py":
            raise FileNotFoundError(path)
        return FILE

    survey = SimpleNamespace(
        found=SimpleNamespace(top=Path.cwd(), root=Path.cwd(), python=["a.py", "b.py"], patches=[]),
        files=SimpleNamespace(read=read),
        findings=[],
    )
    rewrites = [NewContent("a.py", FILE, b"something else\n")] if edits else []
    return Outcome(cast(Any, survey), Plan(edits=edits, **plan), Options(), rewrites, [], None, written, {})


@pytest.mark.parametrize(
    ("written", "path", "line", "now"),
    [
        *((False, "a.py", line, line) for line in range(1, 5)),
        *((True, "a.py", line, now) for line, now in ((1, 1), (2, 2), (3, 5), (4, 6))),
        *((True, "gone.py", line, line) for line in (1, 4)),
    ],
)
def test_where_a_line_stands_now(written: bool, path: str, line: int, now: int) -> None:
    assert outcome(edits=(EDIT,), written=written).line(path, line) == now


def test_remarks_come_by_place_then_rule_then_text() -> None:
    marks = [
        Remark(path, line, rule, "left", text)
        for path in ("a.py", "b.py")
        for line in (2, 10)
        for rule in ("MCU1", "MCU2")
        for text in ("one", "two")
    ]
    elsewhere = Remark("c.py", 1, "MCU1", "left", "one")
    for given in (marks, marks[::-1], [*marks[5:], *marks[:5], elsewhere], sorted(marks, key=lambda one: one.text)):
        assert outcome(remarks=tuple(given)).remarks == marks


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("needed", [None, "mcore-unpatch[compat]"])
def test_a_dependency_is_for_code_that_is_written(edited: bool, needed: str | None, sample: Sample) -> None:
    def planner(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
        found = rewriting(project, findings, options)
        return replace(found, edits=found.edits if edited else (), dependency=needed)

    made = preview(sample.request(), planner)
    assert made.dependency == (Dependency(needed) if needed and edited else None)
    assert Request() == Request([], ScanOptions(), False, False, False, False)


@pytest.mark.parametrize("data", [b"\n\nx\ny", b"a\n\nx\ny\n", b"\n", b"a"])
@pytest.mark.parametrize("put", [b"", b"new", b"new\nlines\n"])
def test_where_lines_stand_after_an_edit(data: bytes, put: bytes) -> None:
    """Each edit of whole lines, and every line that it leaves: found by its text, where all texts differ."""
    lines = [b"%d" % number + line for number, line in enumerate(data.splitlines(keepends=True))]
    whole = b"".join(lines)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    for first in range(len(lines)):
        for last in range(first, len(lines)):
            edit = replace(EDIT, start=starts[first], end=starts[last], replacement=put)
            after = splice(whole, [edit]).split(b"\n")
            for number, line in enumerate(lines):
                if not first <= number < last and (put.endswith(b"\n") or not put or number != last):
                    assert after[moved_line(whole, [edit], number + 1) - 1] == line.rstrip(b"\n")


def test_lines_of_a_file_that_begins_with_an_empty_one() -> None:
    for line in (1, 2, 3, 9):
        assert moved_line(b"\n\nx", [replace(EDIT, start=0, end=0, replacement=b"a\n")], line) == line + 1
        assert moved_line(b"\n\nx", [replace(EDIT, start=1, end=1, replacement=b"a\n")], line) == line + (line > 1)
        assert moved_line(b"\n\nx", [replace(EDIT, start=2, end=2, replacement=b"a\n")], line) == line + (line > 2)


def test_files_are_looked_at_once_for_several_words() -> None:
    texts = {"a.py": b"core = 1", "b.py": b"other", "c.py": b"core, other"}
    whole = Repository(list(texts), lambda _: True, texts.__getitem__)
    whole.look_for("core", "other", "core")
    assert whole.looks == {"core": ["a.py", "c.py"], "other": ["b.py", "c.py"]}
    whole.data = lambda path: pytest.fail(path)  # type: ignore[method-assign]
    whole.look_for("core")


def test_bytes_that_are_no_utf_8_are_shown_as_such() -> None:
    latin = replace(EDIT, replacement=b"\xe9\n")
    (told,) = outcome(edits=(latin,)).changes
    assert (
        Outcome._edit(cast(Any, SimpleNamespace(_as_it_was=lambda _: FILE, _from_root=str)), told)["after"]["text"]
        == "\ufffd\n"
    )
