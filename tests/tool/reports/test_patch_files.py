"""Patch files in a report for people: one entry each, however many functions they change."""

from pathlib import Path

import pytest
from checking import write_files
from command import unpatch

HEAD = "--- a/megatron/core/{0}\n+++ b/megatron/core/{0}\n"


def hunk(line: int, section: str, *added: str) -> str:
    lines = "".join(f"+    {text}\n" for text in added)
    return f"@@ -{line},2 +{line},{2 + len(added)} @@ {section}\n     a = 1\n{lines}     c = 3\n"


PATCH = (
    HEAD.format("utils.py")
    + hunk(10, "def divide(a, b):", "# why")
    + hunk(40, "def get_model_config(model):", "b = 2")
    + hunk(90, "def get_model_config(model):", "b = 3")
    + hunk(120, "def log_single_rank(logger):", "b = 2")
    + hunk(150, "def is_te_min_version(version):", "b = 2")
    + hunk(180, "def is_torch_min_version(version):", "b = 2")
    + HEAD.format("models/gpt/gpt_layer_specs.py")
    + hunk(10, "def get_gpt_layer_local_spec(", "b = 2")
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_files(tmp_path, {"docker/v1/a.patch": PATCH, "docker/v2/a.patch": PATCH, "docker/v3/a.patch": PATCH * 2})
    return tmp_path


def test_one_entry_for_each(project: Path) -> None:
    output = unpatch("scan", "docker/v1", cwd=project).out
    assert output.startswith("""\
docker/v1/a.patch
  6 changes in 2 modules of Megatron: 1 to delete, 1 by hand, 4 kept (MCU402,
  MCU608).
  delete: It changes comments, docstrings or blank lines alone: nothing runs
    differently without it.
    divide (3)
  steps: An official way exists: pass your own `ModuleSpec` as
    `transformer_layer_spec` (any megatron-core).
    get_gpt_layer_local_spec (29)
      1. Call Megatron's `get_gpt_layer_local_spec`, change the `ModuleSpec` it
         returns as line 31 would, and pass that as `transformer_layer_spec`.
  keep: No official way is known for what it does.
    get_model_config (7, 11), log_single_rank (15), is_te_min_version (19),
    is_torch_min_version (23)

""")
    assert output.endswith("Found 6 patches: 1 to delete, 1 by hand, 4 kept.\n")


def test_files_that_say_the_same_have_one(project: Path) -> None:
    output = unpatch("scan", cwd=project).out
    assert "docker/v1/a.patch\ndocker/v2/a.patch\n  6 changes" in output
    assert "\n\ndocker/v3/a.patch\n  6 changes" in output
    assert all(len(line) <= 80 for line in output.splitlines())


def test_machines_get_each_function(project: Path) -> None:
    findings = unpatch("scan", "docker/v1", "--output-format", "json", cwd=project).json["findings"]
    assert [one["verdict"] for one in findings] == ["delete", *["keep"] * 4, "steps"]
    assert [one["related"] for one in findings if one["line"] == 7] == [[{"line": 11, "role": "touches"}]]
    results = unpatch("scan", "docker/v1", "--output-format", "sarif", cwd=project).json["runs"][0]["results"]
    assert len(results) == 6


def test_those_that_no_longer_apply_are_counted(tmp_path: Path) -> None:
    file = "dist_checkpointing/strategies/common.py"
    text = HEAD.format(file) + "@@ -9,2 +9,3 @@ class TorchCommonLoadStrategy(A):\n     def load_common(self, a):\n"
    write_files(tmp_path, {"a.patch": f"{text}+        b = a\n         return a\n"})
    output = " ".join(unpatch("scan", cwd=tmp_path).out.split())
    assert "1 change in 1 module of Megatron: 1 kept. 1 no longer applies (MCU608)." in output
    assert "it does not exist after 0.16.1: TorchCommonLoadStrategy.load_common (3)" in output


def test_a_few_are_told_why_one_by_one(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.patch": HEAD.format("utils.py") + hunk(40, "def get_model_config(model):", "b = 2")})
    output = unpatch("scan", cwd=tmp_path).out
    assert "    get_model_config (3): `" in output
    assert "`unpatch pin` tells when it changes" in " ".join(output.split())
