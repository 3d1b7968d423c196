"""The table at the end, with the real codemods: a proposal is one line, however many edits it takes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    command = [sys.executable, "-m", "mcore_unpatch", "migrate", *options, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_one_line_for_each_finding_with_its_number_of_edits(tmp_path: Path, option: str) -> None:
    done = run(tmp_path, option)
    table = done.stderr if option == "--diff" else done.stdout
    told = re.findall(r"models\.py:(\d+)  MCU1\d\d  .* \(with --unsafe-fixes, (\d+) edits\)", table)
    assert [int(line) for line, _ in told] == LINES
    assert table.count("MCU1") == 2
    edits = json.loads(run(tmp_path, "--check", "--output-format", "json").stdout)["edits"]
    assert sum(int(count) for _, count in told) == len(edits) > 2


def test_what_a_proposal_has_to_say_is_said_once_for_each_finding(tmp_path: Path) -> None:
    table = run(tmp_path, "--check", "--unsafe-fixes").stdout
    notes = [line.strip() for line in table.partition("Results may change\n")[2].partition("\n\n")[0].splitlines()]
    assert {int(re.match(r".*models\.py:(\d+)", note)[1]) for note in notes} == set(LINES)
    assert len(notes) == len(set(notes))
