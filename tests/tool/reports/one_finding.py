"""A finding with one fact more, and a report of such findings."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from checking import GPT

from mcore_unpatch.findings.finding import Assessment, Finding, Report, switched_off
from mcore_unpatch.stacks.revision import Judged, Revision, Stack

ONE = Finding("MCU101", "a.py", 3, 5, 4, f"{GPT}.forward", "class-attr", "replaces it", source="x\ny")
PIN = replace(ONE, rule="MCU801", shape="pin", path="unpatch.lock")
SWITCH = switched_off("p.py", 1, 1, "", "it")
IDLE = replace(ONE, target="", shape="string-target", rule="MCU001")
FILE = replace(ONE, path="a.patch", shape="patch-file", touches=("m.f", "m.C.g"))


def made(verdict: str = "keep", **facts: Any) -> Finding:
    return replace(ONE, assessment=Assessment(verdict, **facts))


def report(*findings: Finding, **facts: Any) -> Report:
    judged = [Judged((Stack(Revision("0.19", ((0, 19),)), why="stated in a.toml"),))]
    return Report(str(Path.cwd()), facts.pop("read", 7), list(findings), judged=facts.pop("judged", judged), **facts)


def said(told: Any) -> list[str]:
    return ["".join(part for part, _ in line) for line in told]
