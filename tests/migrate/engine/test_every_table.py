"""The table at the end, for every kind of outcome: of each part one thing is changed at a time.

The answers stand in `tables.txt`; after a change that is meant, run this once with `APPROVE=1` and read the diff.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sample_repository import Sample, planner as rewriting

from mcore_unpatch.editing.edits import Edit, NewContent, Options, Plan, Remark, Repository, splice
from mcore_unpatch.editing.placing import moved_line
from mcore_unpatch.findings.finding import Assessment, Finding
from mcore_unpatch.megatron.versions import NEWEST
from mcore_unpatch.migrate import table
from mcore_unpatch.migrate.outcome import Dependency, Outcome
from mcore_unpatch.migrate.run import Request, preview
from mcore_unpatch.stacks.revision import Revision, Stack
from mcore_unpatch.survey.survey import ScanOptions

SAID = Path(__file__).with_name("tables.txt")
FILE = b"one\ntwo\nthree\nfour\n"
PATCH = Finding("MCU601", "a.py", 3, 1, 3, "megatron.core.utils.divide", "module-attr", "replaces it")
EDIT = Edit("a.py", "MCU501", "safe", 4, 8, b"2\n2\n2\n", "title", finding_line=2, notes=("mind this",))
LEFT, HAND = (Remark("a.py", 3, "MCU601", kind, "because of x") for kind in ("left", "by-hand"))


class _Judged(SimpleNamespace):
    def __str__(self) -> str:
        return "on 0.19"


def patch(verdict: str = "keep", fix: Any = None, line: int = 3, **facts: Any) -> Finding:
    assessment = Assessment(verdict=cast(Any, verdict), fix=fix, evidence="nothing replaces it")
    return replace(PATCH, line=line, end_line=line, assessment=assessment, **facts)


TWO = (patch(line=2),)


def outcome(
    *left: Finding,
    done: tuple[Finding, ...] = (),
    fixable: tuple[Finding, ...] = (),
    written: bool = False,
    edits: tuple[Edit, ...] = (),
    older: str = "",
    stacks: int = 1,
    unsafe: bool = False,
    unsure: bool = False,
    below: tuple[str, ...] = (),
    dependency: Dependency | None = None,
    becomes: bytes = b"something else\n",
    **plan: Any,
) -> Outcome:
    judged = _Judged(stacks=[SimpleNamespace(said=True, needed=((0, 17),))] * stacks)
    named = [Stack(Revision(name), why=f"{name}.txt:1") for name in below]

    def read(path: str) -> bytes:
        if path != "a.py":
            raise FileNotFoundError(path)
        return FILE

    survey = SimpleNamespace(
        found=SimpleNamespace(top=Path.cwd(), root=Path.cwd(), python=["a.py", "b.py"], patches=["p.patch"]),
        files=SimpleNamespace(read=read),
        findings=[*left, *done],
        judged=[judged],
        stacks=SimpleNamespace(
            older_than=lambda _: named,
            reaching_below=lambda _: named[1:],
            unsure=lambda _: unsure,
            versions=lambda _: (NEWEST,),
        ),
    )
    options = Options(older=lambda _: older, unsure=lambda _: unsure, unsafe_fixes=unsafe)
    rewrites = [NewContent("a.py", FILE, becomes)] if edits else []
    known = {one: one for one in fixable}
    return Outcome(cast(Any, survey), Plan(edits=edits, **plan), options, rewrites, [*left], dependency, written, known)


def _outcomes() -> Iterator[tuple[str, Outcome]]:
    yield "nothing", outcome()
    for verdict in ("keep", "steps", "delete", "rewrite"):
        for facts in ({}, {"steps": ("first", "second")}, {"steps": ("first",), "in_test": True}):
            yield f"{verdict} {facts}", outcome(patch(verdict, **facts))
    for remarks in ((LEFT,), (HAND,), (LEFT, HAND), (replace(LEFT, line=4),), (replace(HAND, detail="- a\n+ b"),)):
        for breaks in ((), ("it is gone: NameError",), ("it is new", "TypeError: no")):
            told = "; ".join(f"{one.kind}:{one.line} {one.detail!r}" for one in remarks)
            yield f"{told} {breaks}", outcome(patch("steps", breaks=breaks, steps=("first",)), remarks=remarks)
    for fix in ("safe", "unsafe", None):
        yield f"{fix} to scan", outcome(patch(), fixable=(patch(fix=fix),))
    for kind, one in {
        "possible": patch(confidence="possible"),
        "possible with a fix": patch(confidence="possible", fix="unsafe"),
        "a patch file": patch(path="p.patch", shape="patch-file"),
        "in a test": patch(in_test=True),
        "elsewhere": patch(path="elsewhere.py"),
        "no patch": patch(target=""),
    }.items():
        yield kind, outcome(one)
    for count in (2, 6, 7, 8):
        yield f"{count} lines", outcome(*(patch(line=line) for line in range(1, count + 1)))
    yield "other subjects", outcome(patch(), patch(line=4, target="megatron.core.utils.other"))
    yield "other tests", outcome(patch(in_test=True), patch(line=4, target="x.y.z", in_test=True))
    yield "other rules", outcome(patch(), patch(line=4, rule="MCU602"))
    yield "two files", outcome(patch(), patch(path="b.py"))
    for written in (False, True):
        for edits in ((EDIT,), (EDIT, replace(EDIT, start=8, end=8, notes=("and this",)))):
            yield (
                f"edits {len(edits)} {written}",
                outcome(patch(line=4), done=TWO, removes=TWO, edits=edits, written=written),
            )
    yield "an emptied file", outcome(edits=(EDIT,), becomes=b"\n")
    yield "an unsafe edit", outcome(edits=(replace(EDIT, applicability="unsafe"),), done=(patch("delete"),))
    yield "an edit of no finding", outcome(edits=(replace(EDIT, finding_line=0),), done=(patch(line=2, rule="MCU501"),))
    done = (patch("delete"), patch("rewrite", line=4), patch("rewrite", line=1))
    yield "deleted and rewritten", outcome(done=done, removes=done, edits=(EDIT,), written=True)
    for needed in (None, "megatron-core>=0.18"):
        for edits in ((), (EDIT,)):
            for below in ((), ("x",), ("x", "y")):
                yield f"needs {needed} {len(edits)} {below}", outcome(requirement=needed, edits=edits, below=below)
    for python in ("", "setup.py says Python 3.9"):
        yield f"depends {python}", outcome(dependency=Dependency("mcore-unpatch[compat]", python), edits=(EDIT,))
    held = replace(LEFT, text="it has no hook on 0.17")
    for older in ("", "on 0.17", "on 0.16"):
        for stacks in (1, 2):
            for unsure in (False, True):
                made = outcome(older=older, stacks=stacks, unsure=unsure, unsafe=unsure, remarks=(held,))
                yield f"held {older} {stacks} {unsure}", made


def test_every_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = ""
    for name, made in _outcomes():
        told = ("".join(text for text, _ in line) for line in table.lines(made))
        said += f"== {name}\n" + "".join(f"{line.rstrip()}\n" for line in told)
    if "APPROVE" in os.environ:
        SAID.write_text(said)
    assert said.splitlines() == SAID.read_text().splitlines(), "if this is meant: run it once with APPROVE=1"


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
