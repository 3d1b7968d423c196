"""The table at the end: what is said of several places is said once, steps are a list, the last line counts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sample_repository import Sample, planner as rewriting

from mcore_unpatch.codemods.edits import Options, Plan, Repository
from mcore_unpatch.findings import Finding
from mcore_unpatch.migrate import table
from mcore_unpatch.migrate.run import preview

# Two forwards of 0.15: each lacks parameters and does not run the hook.
FORWARD = """

def forward_{name}(
    self, input_ids, position_ids, attention_mask, decoder_input=None, labels=None, inference_context=None,
    packed_seq_params=None, extra_block_kwargs=None, runtime_gather_output=None, *, inference_params=None,
    loss_mask=None,
):
    entropy = self.decoder(input_ids)
    return entropy


GPTModel.forward = forward_{name}
"""
TWO = "from megatron.core.models.gpt.gpt_model import GPTModel\n" + FORWARD.format(name="a") + FORWARD.format(name="b")
LINES = [index for index, line in enumerate(TWO.splitlines(), 1) if ".forward = " in line]


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "models.py").write_text(TWO)
    command = [sys.executable, "-m", "mcore_unpatch", "migrate", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_a_proposal_for_several_places_is_told_once_with_its_number_of_edits(tmp_path: Path, option: str) -> None:
    done = run(tmp_path, option)
    output = done.stderr if option == "--diff" else done.stdout
    section = output.partition("Left as it is\n")[2].partition("\n\n")[0]
    *places, told = section.splitlines()
    assert places == [f"  models.py:{line}  MCU101  GPTModel.forward" for line in LINES]
    edits = json.loads(run(tmp_path, "--check", "--output-format", "json").stdout)["edits"]
    assert told == f"      Fits the signature of the release (with --unsafe-fixes, {len(edits) // 2} edits)."
    assert output.splitlines()[-1] == "Found 2 patches: 2 with --unsafe-fixes."


def test_what_a_proposal_has_to_say_is_said_once_with_the_places(tmp_path: Path) -> None:
    output = run(tmp_path, "--check", "--unsafe-fixes").stdout
    section = output.partition("Results may change\n")[2].partition("\n\n")[0].splitlines()
    assert section == [
        *(f"  models.py:{line}  MCU101" for line in LINES),
        "      A stop-gap: the patch stays, and the next release may break it again.",
    ]
    assert output.splitlines()[-1] == "Found 2 patches: 2 by hand."


STEPS = """
from megatron.core.models.gpt.gpt_model import GPTModel
def p(hidden, weight=None, runtime_gather_output=None):
    return hidden, None
def run(model: GPTModel, ids, fused):
    original = model.output_layer.forward
    if fused:
        model.output_layer.forward = p
    try:
        return model(ids)
    finally:
        model.output_layer.forward = original
"""


def test_steps_are_a_list(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(STEPS)
    command = [sys.executable, "-m", "mcore_unpatch", "migrate", "--check"]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    steps = output.partition("To do by hand\n")[2].partition("\n\n")[0].splitlines()
    assert [line[:9] for line in steps if re.match(r" +\d\.", line)] == ["      1. ", "      2. ", "      3. "]
    assert all(line.startswith(("  a.py:8  MCU103", "      ")) and len(line) <= 80 for line in steps)
    assert any(line.startswith("         ") for line in steps)  # a step goes on behind its number
    assert "  a.py:8  MCU103  output_layer.forward\n      See the steps below.\n" in output


REWRITTEN_AND_DELETED = {
    "rl/one.py": "import megatron.core.utils as u\nu.get_model_config = print\n",
    "tests/test_one.py": "import megatron.core.utils as u\nu.get_model_config = print\n",
}


def test_the_last_line_counts(sample: Sample) -> None:
    for name, text in REWRITTEN_AND_DELETED.items():
        (sample.root / name).parent.mkdir(exist_ok=True)
        (sample.root / name).write_text(text)

    def planner(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
        """Takes one of the two patches of the sample out, without a trace."""
        found = rewriting(project, findings, options)
        edits = [replace(edit, replacement=b"") if "trainer" in edit.path else edit for edit in found.edits]
        return replace(found, edits=tuple(edits))

    outcome = preview(sample.request(), planner)
    (*_, last) = ("".join(text for text, _ in line) for line in table.lines(outcome))
    assert last == "Found 4 patches (1 in tests): 1 rewritten, 1 deleted, 2 kept."


HELD = {
    "a.py": "from verl.models.mcore.mtp_patch import patch_mtp_layer_get_embeddings, patch_postprocess\n",
    "b.py": "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n",
}


def test_a_finding_beside_the_one_that_is_answered_is_no_rule_applied(tmp_path: Path) -> None:
    for name, text in HELD.items():
        (tmp_path / name).write_text(text)
    output = run(tmp_path, "--check").stdout
    assert "Rules applied\n  MCU703  verl-mtp-embeddings: 1 finding\n\n" in output


def test_several_caveats_of_one_place_are_a_list_below_it(sample: Sample) -> None:
    def planner(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
        found = rewriting(project, findings, options)
        return replace(found, edits=tuple(replace(edit, notes=("one", "two " * 30)) for edit in found.edits))

    told = ["".join(text for text, _ in line) for line in table.lines(preview(sample.request(), planner))]
    at = told.index("Results may change")
    caveats = told[at + 1 : told.index("", at)]
    assert [line[:8] for line in caveats if ".py:" not in line] == ["      - ", "      - ", " " * 8]
