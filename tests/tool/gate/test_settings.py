"""Which settings of a change count as switched off, for every setting and for what it was before."""

from pathlib import Path
from typing import Any

import pytest

from mcore_unpatch.gate.switches import Gate
from mcore_unpatch.repository.config import Config

BASE, OTHER = "the comparison with 'main', with `base`", "what it names, with `exclude`: 'a'"
CASES: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({}, {}, []),
    ({"exclude": ["a"]}, {"exclude": ["a"]}, []),
    ({"exclude": ["a", "b"]}, {"exclude": ["b"]}, [OTHER]),
    ({"exclude": ["b"]}, {"exclude": ["a", "b"]}, []),
    ({"ignore": ["MCU6"]}, {}, ["what it names, with `ignore`: 'MCU6'"]),
    ({"ignore": ["MCU6"]}, {"exclude": ["MCU6"]}, ["what it names, with `ignore`: 'MCU6'"]),
    ({"select": ["MCU1"]}, {"select": ["MCU1"]}, []),
    ({"select": ["MCU101"]}, {"select": ["MCU101", "MCU105"]}, ["MCU105, with `select`"]),
    ({"select": ["MCU1"]}, {"select": ["MCU101"]}, []),
    ({"baseline": "b.json"}, {}, ["what it accepts, with `baseline`: 'b.json'"]),
    ({"baseline": "b.json"}, {"baseline": "a.json"}, ["what it accepts, with `baseline`: 'b.json'"]),
    ({"baseline": "b.json", "base": "x"}, {"baseline": "b.json"}, []),
    ({}, {"baseline": "b.json"}, []),
    ({"base": "dev"}, {"base": "main"}, [BASE]),
    ({"base": "main", "exclude": ["a"]}, {"base": "main"}, [OTHER]),
    ({"base": "dev"}, {}, []),
    ({}, {"base": "main"}, []),
]


def told(top: Path, now: Config, before: Config) -> list[str]:
    gate = Gate(top, (), now, (before,))
    found = list(gate._settings(before))
    assert {finding.path for finding in found} <= {"pyproject.toml"}
    return [finding.message for finding in found]


@pytest.mark.parametrize(("now", "before", "expected"), CASES)
def test_settings(tmp_path: Path, now: dict[str, Any], before: dict[str, Any], expected: list[str]) -> None:
    said = told(tmp_path, Config(tmp_path, now), Config(tmp_path, before))
    assert len(said) == len(expected)
    assert all(words in message for words, message in zip(expected, said, strict=True)), said
