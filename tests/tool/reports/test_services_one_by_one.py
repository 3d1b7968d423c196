"""Each fact of a finding, alone, as services are told of it."""

from dataclasses import replace
from typing import Any

import pytest

from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding, OnStacks, Related
from mcore_unpatch.findings.rules import rules as known_rules
from mcore_unpatch.report import services
from reports.one_finding import IDLE, ONE, made, report


@pytest.mark.parametrize(
    "finding", [ONE, replace(ONE, in_test=True), replace(made("steps"), replacement="that"), IDLE], ids=repr
)
def test_an_annotation_of_github(finding: Finding) -> None:
    title = {"": "MCU001"}.get(finding.target, f"MCU101 {ONE.target}") + " (in a test)" * finding.in_test
    more = "%0A-> that" if finding.instead else ""
    line = f"::error file=a.py,line=3,endLine=4,col=5,title={title}::replaces it{more}"
    judged = "::notice ::Judged for megatron-core 0.19: stated in a.toml."
    assert services.github(report(finding)) == [line, judged]
    assert services.github(report(finding), "warning")[0] == line.replace("error", "warning", 1)


def test_what_is_no_finding_for_github() -> None:
    notes = ["The baseline allows", "exclude 'a'", "Nested", "the baseline"]
    told = services.github(report(errors=[FileError("b,:.py", "no\n100%")], notes=notes))
    assert told == [
        "::error file=b%2C%3A.py::no%0A100%25",
        "::warning ::The baseline allows",
        "::warning ::exclude 'a'",
    ]


@pytest.mark.parametrize(
    ("confidence", "severity", "level"),
    [("certain", "major", "warning"), ("likely", "minor", "note"), ("possible", "info", "note")],
)
def test_how_sure_a_finding_is(confidence: str, severity: str, level: str) -> None:
    made = report(replace(ONE, confidence=confidence))
    assert services.gitlab(made)[0]["severity"] == severity
    assert services.sarif(made)["runs"][0]["results"][0]["level"] == level


def test_issues_of_gitlab() -> None:
    other = replace(ONE, source="z")
    issues = services.gitlab(report(ONE, other, ONE, replace(ONE, line=9), errors=[FileError("b.py", "no")]))
    marks = [issue["fingerprint"] for issue in issues]
    assert marks[2:4] == [f"{marks[0]}-2", f"{marks[0]}-3"]
    assert marks[1] == services.fingerprint(other) != marks[0]
    assert issues[4] == {
        "description": "no", "check_name": "unreadable", "fingerprint": services._digest("b.py", "no"),
        "severity": "critical", "location": {"path": "b.py", "lines": {"begin": 1}},
    }  # fmt: skip
    (instead,) = services.gitlab(report(replace(made("steps"), replacement="that")))
    assert [issues[0]["description"], instead["description"]] == ["replaces it", "replaces it. Instead: that"]


@pytest.mark.parametrize("errors", [0, 1, 2])
def test_a_run_of_sarif(errors: int) -> None:
    unread = [FileError(f"{number} b.py", f"no {number}") for number in range(errors)]
    (run,) = services.sarif(report(ONE, errors=unread))["runs"]
    (call,) = run["invocations"]
    assert call["executionSuccessful"] is (errors == 0)
    told = call["toolExecutionNotifications"]
    assert [one["level"] for one in told] == ["note", *["error"] * errors]
    places = [one["locations"][0]["physicalLocation"] for one in told[1:]]
    assert places == [{"artifactLocation": {"uri": f"{n}%20b.py", "uriBaseId": "ROOT"}} for n in range(errors)]
    rules = run["tool"]["driver"]["rules"]
    assert rules[run["results"][0]["ruleIndex"]]["id"] == "MCU101"
    assert [rule.get("helpUri") for rule in rules] == [rule.link or None for rule in known_rules().values()]


@pytest.mark.parametrize(
    ("finding", "message", "related", "stacks"),
    [
        (ONE, "replaces it", None, False),
        (replace(made("steps"), replacement="that"), "replaces it. Instead: that", None, False),
        (replace(ONE, replacement="that"), "replaces it", None, False),
        (made(on_stacks=(OnStacks(("0.18",), "o", "keep"),)), "replaces it. On ", None, True),
        (
            replace(ONE, related=(Related(1, "backup"), Related(9, "restore"))),
            "replaces it",
            [(0, 1, "backup"), (1, 9, "restore")],
            False,
        ),
    ],
)
def test_a_result_of_sarif(finding: Finding, message: str, related: Any, stacks: bool) -> None:
    (result,) = services.sarif(report(finding))["runs"][0]["results"]
    text = result["message"]["text"]
    assert text.startswith(message) if stacks else text == message
    assert ("stacks" in result["properties"]) is stacks
    places = result.get("relatedLocations")
    assert related == (places and [
        (one["id"], one["physicalLocation"]["region"]["startLine"], one["message"]["text"]) for one in places
    ])  # fmt: skip
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 3, "startColumn": 5, "endLine": 4}
