"""What is remembered of one file, given back as it was; damaged it counts for nothing."""

from dataclasses import asdict
from typing import Any

import pytest
from checking import found_in

from mcore_unpatch.errors import FileError
from mcore_unpatch.survey.remembered import _part

[FINDING] = found_in("from megatron.core.models.gpt.gpt_model import GPTModel\nGPTModel.forward = print\n")
LISTS = ("marked", "saying", "testing")


@pytest.mark.parametrize("name", LISTS)
def test_the_lists_that_a_file_is_in(name: str) -> None:
    part = _part("a.py", {name: 1})
    assert part is not None
    assert {one: getattr(part, one) for one in LISTS} == {one: ["a.py"] * (one == name) for one in LISTS}
    assert (part.files, part.findings, part.errors) == (1, [], [])


def test_findings_and_errors() -> None:
    error = {"path": "a.py", "message": "no"}
    part = _part("a.py", {"findings": [asdict(FINDING)], "errors": [error]})
    assert part is not None
    assert part.findings == [FINDING]
    assert [asdict(one) for one in part.findings] == [asdict(FINDING)]
    assert part.errors == [FileError("a.py", "no")]


BROKEN: list[Any] = [
    *(None, [], "x", 3, {"findings": [{}]}, {"findings": 3}),
    *({"errors": [{"path": "a.py"}]}, {"findings": [{**asdict(FINDING), "live": 3}]}),
]


@pytest.mark.parametrize("entry", BROKEN, ids=lambda entry: str(entry)[:40])
def test_what_cannot_be_used(entry: Any) -> None:
    assert _part("a.py", entry) is None
