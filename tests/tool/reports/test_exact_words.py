"""Small sentences in full: how many things a line names before it counts the rest, and ranges of releases."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from mcore_unpatch.editing.edits import Edit
from mcore_unpatch.findings.finding import Finding, Live, OnStacks
from mcore_unpatch.gate import compare
from mcore_unpatch.judge.statement import Statement, labels, only_if
from mcore_unpatch.library.model import Usage
from mcore_unpatch.megatron import slots
from mcore_unpatch.megatron.versions import RELEASES, parse_version
from mcore_unpatch.migrate import table
from mcore_unpatch.report import text
from mcore_unpatch.survey.other_code import not_read
from mcore_unpatch.upgrade import matrix, mend
from mcore_unpatch.upgrade.run import UpgradeReport


def plain(lines: Any) -> list[str]:
    return ["".join(part for part, _ in line) for line in lines]


@pytest.mark.parametrize(
    ("count", "named"), [(1, "s1"), (4, "s1, s2, s3, s4"), (5, "s1, s2, s3, s4 and 1 more")], ids=str
)
def test_stacks_of_a_finding(count: int, named: str) -> None:
    stacks = tuple(f"s{number}" for number in range(1, count + 1))
    assert str(OnStacks(stacks, "breaks", "delete")) == f"{named}: breaks, so delete"


@pytest.mark.parametrize(
    ("count", "named"), [(3, "f1.sh, f2.sh, f3.sh"), (4, "f1.sh, f2.sh, f3.sh and 1 more"), (0, "")]
)
def test_files_that_are_not_read(count: int, named: str) -> None:
    names = [f"f{number}.sh" for number in range(1, count + 1)]
    said = f"Not read, though code in them may patch Megatron: {named}." if named else ""
    assert not_read([*names, "readme.md"], lambda _: b"sed -i s/a/b/ /opt/megatron/core/utils.py\n") == said


@pytest.mark.parametrize(
    ("count", "named"), [(6, "Shape.m1, m2, m3, m4, m5, m6"), (7, "Shape.m1, m2, m3, m4, m5, m6 and 1 more")]
)
def test_what_a_patch_file_touches(count: int, named: str) -> None:
    touches = ["megatron.core.a.Shape.m1", *(f"megatron.core.a.m{number}" for number in range(2, count + 1))]
    finding = Finding("MCU608", "a.patch", 1, 1, 1, "", "patch-file", "changes it", touches=tuple(touches))
    told = plain(text._patch_file(finding))
    assert [line.strip() for line in told[:2]] == ["Changes it (MCU608).", named]


@pytest.mark.parametrize(
    ("lines", "named"),
    [([1, 2, 2, 3], "1, 2, 3"), (range(1, 7), "1, 2, 3, 4, 5, 6"), (range(1, 8), "1, 2, 3, 4, 5, 6 and 1 more")],
)
def test_lines_of_a_file_that_break_one_rule(lines: Any, named: str) -> None:
    outcome: Any = SimpleNamespace(line=lambda path, line: line, shown=lambda path: f"./{path}")
    rows = [table._Entry("finding", "a.py", line, "MCU601", "why", "forward (test)") for line in lines]
    assert plain(table._places(rows, outcome)) == [f"  ./a.py:{named}  MCU601  forward (test)"]
    other = table._Entry("finding", "a.py", 9, "MCU601", "why", "other (test)")
    assert plain(table._places([rows[0], other], outcome)) == ["  ./a.py:1, 9  MCU601  (test)"]
    code = table._Entry("finding", "a.py", 9, "MCU601", "why", "other")
    assert plain(table._places([code, rows[0]], outcome)) == ["  ./a.py:9, 1  MCU601"]


class Release(NamedTuple):
    """What a release is called; all that is asked of it here."""

    label: str


def release(label: str) -> Any:
    return Release(label)


@pytest.mark.parametrize(("count", "said"), [(1, "r1"), (4, "r1, r2, r3, r4"), (5, "r1 ... r5 (5 releases)")], ids=str)
def test_the_releases_that_an_upgrade_goes_from(count: int, said: str) -> None:
    new, olds = release("new"), [release(f"r{number}") for number in range(1, count + 1)]
    report = UpgradeReport(SimpleNamespace(), olds[0], new, steps=[(old, new) for old in olds])  # type: ignore[arg-type]
    assert report.from_to == f"From megatron-core {said} to new"


@pytest.mark.parametrize(
    ("count", "line"),
    [
        (0, "  0.19.2       -  in use"),
        (3, "  0.19.2       3  a.py:1, a.py:2, a.py:3"),
        (4, "  0.19.2       4  a.py:1, a.py:2, a.py:3 and 1 more"),
    ],
)
def test_the_lines_that_raise_on_a_release(monkeypatch: pytest.MonkeyPatch, count: int, line: str) -> None:
    broken = [SimpleNamespace(path="a.py", line=number) for number in range(1, count + 1)]
    monkeypatch.setattr(matrix, "raising", lambda _: broken)
    report: Any = SimpleNamespace(
        new=release("0.19.2"), scanned=SimpleNamespace(from_here=str), uses=SimpleNamespace(read=1, files=2)
    )
    head, _, told, _, read, *rest = plain(matrix.lines([report], "0.19.2"))
    assert (head, told) == ("Lines that raise, seen from megatron-core 0.19.2", line)
    assert read == "Read: 1 use of Megatron in 2 files; tests are left out."
    span = "Of what was read nothing raises from 0.19.2 to 0.19.2: `megatron-core>=0.19.2,<=0.19.2`."
    assert " ".join(rest) == (
        "megatron-core 0.19.2 is not in that range, or lines raise on it already." if count else span
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [("a", "a"), ("ab", "a and b"), ("abc", "a, b and c"), ("abcd", "a, b and 2 more"), ("", "")],
)
def test_lists_in_words(words: str, said: str) -> None:
    assert slots._listed(list(words), "and") == said


@pytest.mark.parametrize(
    ("names", "every", "said"),
    [
        ("a", "", "a"),
        ("ab", "", "a, b"),
        ("abc", "", "a to c"),
        ("aab", "", "a, b"),
        ("bcd", "abcde", "b to d"),
        ("abd", "abcde", "a, b, d"),
        ("bc", "abc", "b, c"),
    ],
)
def test_releases_in_words(names: str, every: str, said: str) -> None:
    assert labels([release(name) for name in names], [release(name) for name in every]) == said


def test_the_one_condition_of_all_calls() -> None:
    one, other, none = Usage("c", "m", condition="x"), Usage("c", "m", condition="y"), Usage("c", "m")
    assert [only_if(one), only_if(one, one), only_if(one, other), only_if(none), only_if(one, none)] == [
        ", only if `x`",
        ", only if `x`",
        "",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("statement", "from_there", "from_elsewhere"),
    [
        (Statement("raises", "it fails"), "it fails", "it fails"),
        (Statement("raises", "it fails", path="a.py", line=3), "it fails", "a.py:3: it fails"),
        (Statement("raises", "it fails", line=4), "line 4: it fails", "line 4: it fails"),
        (
            Statement("raises", "it", "TypeError", "a.py", 3, trigger="on import", instead="write that"),
            "it: TypeError on import; write that",
            "a.py:3: it: TypeError on import; write that",
        ),
    ],
)
def test_a_statement_says_its_line_where_that_is_another(
    statement: Statement, from_there: str, from_elsewhere: str
) -> None:
    assert (statement.seen_from("a.py", 3), statement.seen_from("b.py", 3)) == (from_there, from_elsewhere)


def edit(path: str, start: int, end: int, **more: Any) -> Edit:
    return Edit(path, "MCU501", "safe", start, end, b"x", "title", **more)


def test_edits_that_touch_are_apart_and_those_that_overlap_the_first_go() -> None:
    first, behind, inside, before = (edit("a.py", *span) for span in ((2, 5), (5, 7), (3, 4), (0, 2)))
    assert mend._apart([first, first, behind, inside, before]) == [first, behind, before]


def test_files_and_notes_of_a_migration() -> None:
    """A file has the rules of its findings and of the edits in it; a note is told once for each finding."""
    noted = [edit("a.py", 0, 1, finding_line=3, notes=("careful",)), edit("b.py", 4, 4, notes=("look",))]
    changes = [SimpleNamespace(edit=one, before=SimpleNamespace(line=9)) for one in (noted[0], *noted)]
    outcome: Any = SimpleNamespace(
        answered=[Finding("MCU101", "a.py", 3, 1, 3, "t", "class-attr", "m")],
        plan=SimpleNamespace(edits=noted),
        rewrites=[SimpleNamespace(path="a.py", after=b"x"), SimpleNamespace(path="b.py", after=b"x")],
        shown=str,
        changes=changes,
    )
    assert plain(table._files(outcome)) == ["", "Files changed", "  a.py  MCU101, MCU501", "  b.py  MCU501"]
    assert [(entry.kind, entry.path, entry.line, entry.text) for entry in table._notes(outcome)] == [
        ("note", "a.py", 3, "careful"),
        ("note", "b.py", 9, "look"),
    ]


def test_one_patch_of_the_base_stands_for_one_patch_now() -> None:
    """The least of those that did as much is taken away, once."""
    finding = Finding("MCU101", "a.py", 3, 1, 3, "t", "class-attr", "m")
    always, passing = (Live(), False, False), (Live(), True, False)
    version = parse_version(LAST)
    there = Counter({always: 2, passing: 1})
    assert compare._take(finding, there, (version,))
    assert there == {always: 1, passing: 1}
    assert compare._take(replace(finding, temporary=True), there, (version,))
    assert there == {always: 1, passing: 0}
    assert compare._take(finding, there, (version,))
    assert not compare._take(finding, there, (version,))
    assert [compare._gain(Live(), *flags) for flags in ((False, True), (True, False), (False, False))] == [
        "before this change it stood in a test",
        "before this change it was undone again",
        "before this change it did not run",
    ]


FIRST, SECOND, LAST = RELEASES[0], RELEASES[1], RELEASES[-1]


@pytest.mark.parametrize(
    ("live", "said"),
    [
        (Live(), "any"),
        (Live((), False), "none"),
        (Live((), True), f">{LAST}"),
        (Live((LAST,), True), f">={LAST}"),
        (Live((LAST,), False), f"=={LAST}"),
        (Live((FIRST, SECOND), False), f"<={SECOND}"),
        (Live(RELEASES[1:3], False), f">={SECOND},<={RELEASES[2]}"),
        (Live((FIRST, LAST), True), f"=={FIRST} or >={LAST}"),
    ],
)
def test_where_a_patch_is_live(live: Live, said: str) -> None:
    assert str(live) == said


@pytest.mark.parametrize(
    ("version", "of_oldest", "of_newest", "newer"),
    [("0.1", True, False, False), (FIRST, True, False, False), (LAST, False, True, False), ("9.0", False, False, True)],
)
def test_on_which_release_a_patch_is_live(version: str, of_oldest: bool, of_newest: bool, newer: bool) -> None:
    """The oldest speaks for what was before it, and of what is newer nobody knows."""
    asked = parse_version(version)
    lives = Live((FIRST,), False), Live((LAST,), False), Live((), True)
    assert [live.on(asked) for live in lives] == [of_oldest, of_newest, newer]
