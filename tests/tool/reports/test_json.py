"""JSON, version 1, is an interface others build on: names, types and words are fixed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from checking import write_files
from command import ERROR, FINDINGS, unpatch, unpatch_forked, unpatch_process

from reports.sample import FILES

SHAPES = [
    "class-attr",
    "module-attr",
    "instance-attr",
    "setattr",
    "class-of-instance",
    "submodule",
    "sys-modules",
    "string-target",
    "source-rewrite",
    "mock",
    "patch-file",
    "subclass",
    "wrapper",
]
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["version", "root", "files_scanned", "judged", "findings", "errors"],
    "properties": {
        "version": {"const": 1},
        "root": {"type": "string"},
        "files_scanned": {"type": "integer"},
        "judged": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["releases", "why", "stacks", "files"],
                "properties": {
                    "releases": {"type": "array", "items": {"type": "string", "pattern": r"^\d+\.\d+(\.\d+)?$"}},
                    "why": {"type": "string"},
                    "stacks": {"type": "array", "items": {"type": "string"}},
                    "files": {"type": "array", "items": {"type": "string", "pattern": r"^[^/\\]"}},
                },
            },
        },
        "findings": {"type": "array", "items": {"$ref": "#/$defs/finding"}},
        "counts": {"additionalProperties": {"additionalProperties": {"type": "integer"}}},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["path", "message"],
                "properties": {"path": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
    "$defs": {
        "finding": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "rule": {"type": "string", "pattern": "^MCU[0-9]{3}$"},
                "path": {"type": "string", "pattern": r"^[^/\\]"},
                "line": {"type": "integer", "minimum": 1},
                "column": {"type": "integer", "minimum": 1},
                "end_line": {"type": "integer", "minimum": 1},
                "target": {"type": "string"},
                "shape": {"enum": SHAPES},
                "seam": {"enum": ["output", "schedule", "mtp", "config", "value-head", "hook", "none"]},
                "confidence": {"enum": ["certain", "likely"]},
                "temporary": {"type": "boolean"},
                "in_test": {"type": "boolean"},
                "fix": {"enum": ["safe", "unsafe", None]},
                "message": {"type": "string", "minLength": 1},
                "replacement": {"type": ["string", "null"]},
                "live": {"type": "string", "pattern": r"^(any|none|([<>=]+[\d.]+,?)+( or ([<>=]+[\d.]+,?)+)*)$"},
                "depends": {"type": "array", "items": {"type": "string"}},
                "verdict": {"enum": ["rewrite", "delete", "steps", "keep"]},
                "evidence": {"type": "string", "minLength": 1},
                "steps": {"type": "array", "items": {"type": "string"}},
                "related": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["line", "role"],
                        "properties": {"line": {"type": "integer", "minimum": 1}, "role": {"type": "string"}},
                    },
                },
            },
        }
    },
}
FINDING: dict[str, Any] = SCHEMA["$defs"]["finding"]  # type: ignore[index]
FINDING["required"] = list(FINDING["properties"])


@pytest.fixture
def report(tmp_path: Path) -> dict[str, Any]:
    """The report on the sample."""
    write_files(tmp_path, FILES)
    result = unpatch("scan", "--output-format", "json", cwd=tmp_path)
    assert result.code == ERROR
    return result.json


def test_nothing_but_json_on_stdout(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    result = unpatch_process("check", "--output-format", "json", cwd=tmp_path, env={"PYTHONIOENCODING": "utf-8"})
    assert json.loads(result.out)["version"] == 1
    assert result.err.startswith("error: broken.py: ")


def test_a_terminal_that_knows_ascii_only(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    env = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    for style in ("json", "text", "sarif", "github"):
        assert unpatch_process("scan", "--output-format", style, cwd=tmp_path, env=env).code == ERROR


def test_paths_are_relative_to_the_common_folder(tmp_path: Path) -> None:
    write_files(tmp_path, {"a/b/x.py": FILES["pkg/patches.py"], "a/c/y.py": FILES["pkg/patches.py"]})
    report = unpatch("scan", "--output-format", "json", "a/b", "a/c", cwd=tmp_path).json
    assert report["root"] == str(tmp_path / "a")
    assert {f["path"] for f in report["findings"]} == {"b/x.py", "c/y.py"}


@pytest.mark.parametrize("style", ["json", "text", "sarif", "github"])
def test_file_names_that_are_no_text(style: str, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    write_files(tmp_path, {name: "from megatron.core import utils\nutils.get_model_config = print\n"})
    result = unpatch_forked("check", "--output-format", style, cwd=tmp_path)
    assert (result.code, result.err) == (FINDINGS, "")
    assert "caf" in result.out
