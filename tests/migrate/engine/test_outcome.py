"""One small migration as data, field by field, and as text: what was done, what is left, what the new code needs."""

from pathlib import Path
from typing import Any

import pytest
from command import unpatch
from repository import Repository

WRAPPER = """\
from megatron.core.models.gpt.gpt_model import GPTModel


def double(model: GPTModel):
    original = model.decoder.forward

    def doubled(*args, **kwargs):
        out = original(*args, **kwargs)
        return out * 2

    model.decoder.forward = doubled


GPTModel.forward = double
"""
PATCH = """\
--- a/megatron/core/models/gpt/gpt_model.py
+++ b/megatron/core/models/gpt/gpt_model.py
@@ -400,2 +400,3 @@ class GPTModel(LanguageModule):
     def _postprocess(
         self,
+        more=None,
"""
FILES = {"src/wrap.py": WRAPPER, "megatron.patch": PATCH, "requirements.txt": "megatron-core==0.19.2\nmcore-unpatch\n"}


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
    files = ["megatron.patch", "src/wrap.py"]
    assert data["judged"] == [
        {"releases": ["0.19.2"], "why": "requirements.txt:1", "stacks": ["0.19.2"], "files": files}
    ]
    assert [(file["path"], file["rules"]) for file in data["files"]] == [("src/wrap.py", ["MCU403"])]
    assert (data["requirement"], data["dependency"], data["errors"]) == (None, None, [])
    assert [(one["path"], one["line"], one["kind"]) for one in data["remarks"]] == [("src/wrap.py", 14, "form")]
    assert [(row["rule"], row["path"], row["line"]) for row in data["remaining"]] == [
        ("MCU608", "megatron.patch", 3),
        ("MCU403", "src/wrap.py", 14),
    ]


def test_counts(data: dict[str, Any]) -> None:
    some = {
        (side, group): {kind: number for kind, number in numbers.items() if number}
        for side, groups in data["counts"].items()
        for group, numbers in groups.items()
        if isinstance(numbers, dict) and any(numbers.values())
    }
    assert some == {
        ("done", "code"): {"total": 1, "by_hand": 1},
        ("left", "code"): {"total": 1, "breaks": 1, "by_hand": 1},
        ("left", "patch_files"): {"total": 1, "stays": 1},
    }


def test_edits_stand_where_they_say(data: dict[str, Any]) -> None:
    assert {(edit["path"], edit["rule"], edit["level"]) for edit in data["edits"]} == {
        ("src/wrap.py", "MCU403", "behaviour")
    }
    last = data["edits"][-1]
    assert last["before"] | {"start": 0, "end": 0} == {
        "start": 0,
        "end": 0,
        "line": 11,
        "column": 5,
        "end_line": 11,
        "end_column": 36,
        "text": "model.decoder.forward = doubled",
    }
    assert last["after"]["line"] == 8 and last["after"]["text"] == "model.decoder.register_forward_hook(doubled)"
    for edit in data["edits"]:
        before, after = edit["before"], edit["after"]
        assert WRAPPER[before["start"] : before["end"]] == before["text"]
        assert after["end"] - after["start"] == len(after["text"])
    assert "-    model.decoder.forward = doubled" in last["diff"]


def test_as_text(folder: Path) -> None:
    told = unpatch("migrate", "--diff", "--unsafe-fixes", ".", cwd=folder)
    assert "+    model.decoder.register_forward_hook(doubled)" in told.out
    assert "1 in patch files" in told.err
