"""What came of a migration: what is depended on, and bytes that are no text."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sample_repository import Sample, planner as rewriting

from mcore_unpatch.editing.edits import Edit, NewContent, Options, Plan, Repository
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.migrate.outcome import Outcome
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
        found=SimpleNamespace(shown=str, top=Path.cwd(), root=Path.cwd(), python=["a.py", "b.py"], patches=[]),
        files=SimpleNamespace(read=read),
        findings=[],
    )
    rewrites = [NewContent("a.py", FILE, b"something else\n")] if edits else []
    return Outcome(cast(Any, survey), Plan(edits=edits, **plan), Options(), rewrites, [], written)


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("needed", [None, "mcore-unpatch[compat]"])
def test_a_dependency_is_for_code_that_is_written(edited: bool, needed: str | None, sample: Sample) -> None:
    def planner(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
        found = rewriting(project, findings, options)
        return replace(found, edits=found.edits if edited else (), dependency=needed)

    made = preview(sample.request(), planner)
    assert made.plan.dependency == (needed if edited else None)
    assert Request() == Request([], ScanOptions(), False, False, False, False)


def test_bytes_that_are_no_utf_8_are_shown_as_such() -> None:
    latin = replace(EDIT, replacement=b"\xe9\n")
    (told,) = outcome(edits=(latin,)).changes
    assert Outcome._edit(outcome(edits=(latin,)), told)["after"]["text"] == "\ufffd\n"
