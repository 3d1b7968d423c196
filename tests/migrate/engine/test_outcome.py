"""One small migration as data, field by field, and as text: what was done, what is left, what the new code needs."""

import json
from pathlib import Path
from typing import Any

import pytest
from command import unpatch
from repository import Repository

CRITIC = """\
from megatron.core.models.gpt.gpt_model import GPTModel

from heads import LastLayer


def critic(model: GPTModel, config):
    model.output_layer = LastLayer(config.hidden_size, 1)


GPTModel.forward = critic
"""
PATCH = """\
--- a/megatron/core/models/gpt/gpt_model.py
+++ b/megatron/core/models/gpt/gpt_model.py
@@ -400,2 +400,3 @@ class GPTModel(LanguageModule):
     def _postprocess(
         self,
+        more=None,
"""
FILES = {"src/critic.py": CRITIC, "megatron.patch": PATCH, "requirements.txt": "megatron-core==0.19.2\nmcore-unpatch\n"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("outcome")
    Repository(top).commit(FILES)
    return top


@pytest.fixture(scope="module")
def data(folder: Path) -> dict[str, Any]:
    return unpatch("migrate", "--diff", "--unsafe-fixes", "--output-format", "json", ".", cwd=folder).json


def test_the_whole(data: dict[str, Any], folder: Path) -> None:
    assert (data["version"], data["root"], data["files_scanned"], data["written"]) == (1, str(folder), 2, False)
    files = ["megatron.patch", "src/critic.py"]
    assert data["judged"] == [
        {"releases": ["0.19.2"], "why": "requirements.txt:1", "stacks": ["0.19.2"], "files": files}
    ]
    assert [(file["path"], file["rules"]) for file in data["files"]] == [("src/critic.py", ["MCU501"])]
    assert (data["requirement"], data["errors"], data["remarks"]) == ("megatron-core>=0.18", [], [])
    assert [(row["rule"], row["path"], row["line"]) for row in data["remaining"]] == [
        ("MCU608", "megatron.patch", 3),
        ("MCU601", "src/critic.py", 11),
    ]
    assert data["dependency"]["line"] == "mcore-unpatch[compat]"


def test_counts(data: dict[str, Any]) -> None:
    some = {
        (side, group): {kind: number for kind, number in numbers.items() if number}
        for side, groups in data["counts"].items()
        for group, numbers in groups.items()
        if isinstance(numbers, dict) and any(numbers.values())
    }
    assert some == {
        ("done", "code"): {"total": 1, "by_hand": 1},
        ("left", "code"): {"total": 1, "breaks": 1, "kept": 1},
        ("left", "patch_files"): {"total": 1, "kept": 1},
    }


def test_edits_stand_where_they_say(data: dict[str, Any]) -> None:
    first, second = data["edits"]
    assert {(edit["path"], edit["rule"], edit["level"]) for edit in data["edits"]} == {
        ("src/critic.py", "MCU501", "behaviour")
    }
    assert first["before"] == {"start": 0, "end": 0, "line": 1, "column": 1, "end_line": 1, "end_column": 1, "text": ""}
    assert second["before"] | {"start": 0, "end": 0} == {
        "start": 0,
        "end": 0,
        "line": 7,
        "column": 5,
        "end_line": 7,
        "end_column": 58,
        "text": "model.output_layer = LastLayer(config.hidden_size, 1)",
    }
    assert second["after"] | {"start": 0, "end": 0} == {
        "start": 0,
        "end": 0,
        "line": 8,
        "column": 5,
        "end_line": 8,
        "end_column": 60,
        "text": "add_value_head(model, LastLayer(config.hidden_size, 1))",
    }
    for edit in (first, second):
        before, after = edit["before"], edit["after"]
        assert CRITIC[before["start"] : before["end"]] == before["text"]
        assert after["end"] - after["start"] == len(after["text"])
    assert first["diff"].count("\n+") == 2  # the head of the diff and the import alone
    assert "-    model.output_layer = LastLayer" in second["diff"]


def test_the_diff_applies_to_the_file(data: dict[str, Any]) -> None:
    diff = data["files"][0]["diff"]
    lines = [line[1:] for line in diff.splitlines(keepends=True)[3:] if line[0] in " +"]
    assert "".join(lines) == CRITIC.replace(
        "model.output_layer = LastLayer(config.hidden_size, 1)",
        "add_value_head(model, LastLayer(config.hidden_size, 1))",
    ).join(["from mcore_unpatch.compat import add_value_head\n", ""])
    assert json.dumps(data)


def test_as_text(folder: Path) -> None:
    told = unpatch("migrate", "--diff", "--unsafe-fixes", ".", cwd=folder)
    assert "+    add_value_head(model, LastLayer(config.hidden_size, 1))" in told.out
    assert "1 in patch files" in told.err
    assert "mcore-unpatch[compat]" in told.err
