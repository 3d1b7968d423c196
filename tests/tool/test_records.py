"""Classes of values."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import pytest

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.records import field, record, replace


@record
class _Pair:
    one: int
    two: str = ""
    seen: list[int] = field(default_factory=list, compare=False)


@record
class _Other:
    one: int
    two: str = ""


def test_values_are_equal_where_their_fields_are() -> None:
    assert _Pair(1, "a", [1]) == _Pair(1, "a") == replace(_Pair(1), two="a")
    assert len({_Pair(1, "a", [1]), _Pair(1, "a"), _Pair(1, "b")}) == 2
    assert _Pair(1, "a") != _Pair(2, "a")


def test_those_of_another_class_are_others() -> None:
    assert _Pair(1) != _Other(1)
    assert _Pair(1) != 1


def test_one_comes_back_from_another_process() -> None:
    assert pickle.loads(pickle.dumps(_Pair(1, "a", [2]))).seen == [2]


def test_it_shows_its_fields_and_has_no_others() -> None:
    assert repr(_Other(1, "a")) == "_Other(one=1, two='a')"
    assert not hasattr(_Other(1), "__dict__")


def test_a_finding_and_what_becomes_of_it_stay_as_they_are() -> None:
    finding = Finding("MCU101", "a.py", 3, 1, 3, "megatron.core.x", "class-attr", "")
    for one, name in ((finding, "line"), (finding.assessment, "verdict")):
        with pytest.raises(FrozenInstanceError):
            setattr(one, name, "another")
