"""The table at the end: what is said of several places is said once, steps are a list, the last line counts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from command import Result, unpatch
from sample_repository import Sample, planner as rewriting

from mcore_unpatch.editing.edits import Options, Plan, Repository
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.migrate import table
from mcore_unpatch.migrate.outcome import Outcome
from mcore_unpatch.migrate.run import preview

WRAPPER = """

def double_{name}(model: GPTModel):
    original = model.{name}.forward

    def doubled(*args, **kwargs):
        out = original(*args, **kwargs)
        return out * 2

    model.{name}.forward = doubled
"""
HEAD = "from megatron.core.models.gpt.gpt_model import GPTModel\n"
TWO = HEAD + WRAPPER.format(name="decoder") + WRAPPER.format(name="embedding")
LINES = [index for index, line in enumerate(TWO.splitlines(), 1) if ".forward = " in line]


def run(folder: Path, *options: str) -> Result:
    (folder / "models.py").write_text(TWO)
    return unpatch("migrate", *options, cwd=folder)


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_what_takes_consent_is_told_once_for_several_places(tmp_path: Path, option: str) -> None:
    done = run(tmp_path, option)
    output = done.err if option == "--diff" else done.out
    section = output.partition("Left as it is\n")[2].partition("\n\n")[0]
    place, *told = section.splitlines()
    assert place == f"  models.py:{LINES[0]}, {LINES[1]}  MCU403"
    assert [line.strip() for line in told] == ["`--unsafe-fixes` rewrites it."]
    assert json.loads(run(tmp_path, "--check", "--output-format", "json").out)["edits"] == []
    assert output.endswith("\nLeft: 2 in code (2 with --unsafe-fixes)\n")


def test_what_a_proposal_has_to_say_is_said_once_with_the_places(tmp_path: Path) -> None:
    output = run(tmp_path, "--check", "--unsafe-fixes").out
    section = output.partition("Results may change\n")[2].partition("\n\n")[0].splitlines()
    assert section[0] == f"  models.py:{LINES[0]}, {LINES[1]}  MCU403"
    assert section[1] == "      - A hook runs when the module is called, and not when something calls its"
    assert output.endswith("\nWould be done: 2 rewritten\nLeft: nothing\n")


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
    output = unpatch("migrate", "--check", cwd=tmp_path).out
    steps = output.partition("To do by hand\n")[2].partition("\n\n")[0].splitlines()
    assert [line[:9] for line in steps if re.match(r" +\d\.", line)] == ["      1. ", "      2. ", "      3. "]
    assert all(line.startswith(("  a.py:8  MCU103", "      ")) and len(line) <= 80 for line in steps)
    assert any(line.startswith("         ") for line in steps)  # a step goes on behind its number
    assert "Left as it is" not in output


def test_a_patch_in_tests_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    patch = "from megatron.core.transformer.attention import SelfAttention\n\n\ndef test_it():\n    "
    (tmp_path / "tests" / "test_a.py").write_text(f"{patch}SelfAttention.forward = print\n")
    output = unpatch("migrate", "--check", "--unsafe-fixes", cwd=tmp_path).out
    assert "To do by hand" not in output
    told = output.partition("Left as it is\n")[2].partition("\n\n")[0].splitlines()
    assert told[0] == "  tests/test_a.py:5  MCU402  SelfAttention.forward (test)"
    assert told[1].startswith("      An official way exists: ")


REWRITTEN_AND_DELETED = {
    "rl/one.py": "import megatron.core.utils as u\nu.get_model_config = print\n",
    "tests/test_one.py": "import megatron.core.utils as u\nu.get_model_config = print\n",
}


def test_the_last_lines_count(sample: Sample) -> None:
    for name, text in REWRITTEN_AND_DELETED.items():
        (sample.root / name).parent.mkdir(exist_ok=True)
        (sample.root / name).write_text(text)

    outcome = preview(sample.request(), rewriting)
    *_, done, left, offer, rest = ("".join(text for text, _ in line) for line in table.lines(outcome))
    assert done == "Would be done: 2 rewritten"
    assert left == "Left: 1 in code (1 kept); 1 in tests (1 kept)"
    assert offer == "Next: unpatch pin --target-mcore 0.19, which tells when Megatron changes under"
    assert rest.strip() == "the patch that stays"


HELD = {
    "a.py": "from verl.models.mcore.mtp_patch import patch_mtp_layer_get_embeddings, patch_postprocess\n",
    "b.py": "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n",
}


def test_a_finding_beside_the_one_that_is_answered_is_not_named_with_the_file(tmp_path: Path) -> None:
    for name, text in HELD.items():
        (tmp_path / name).write_text(text)
    output = run(tmp_path, "--check").out
    assert "Files changed\n  a.py  MCU703\n\n" in output


def test_several_caveats_of_one_place_are_a_list_below_it(sample: Sample) -> None:
    def planner(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
        found = rewriting(project, findings, options)
        return replace(found, edits=tuple(replace(edit, notes=("one", "two " * 30)) for edit in found.edits))

    told = ["".join(text for text, _ in line) for line in table.lines(preview(sample.request(), planner))]
    assert "Results may change" not in told  # these edits are safe
    at = told.index("Good to know")
    caveats = told[at + 1 : told.index("", at)]
    assert [line[:8] for line in caveats if ".py:" not in line] == ["      - ", "      - ", " " * 8]


def test_the_numbers_are_those_of_scan(tmp_path: Path) -> None:
    for name, text in {**HELD, "models.py": TWO, "tests/a.py": STEPS}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    scanned = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["counts"]
    migrated = unpatch("migrate", "--check", "--output-format", "json", cwd=tmp_path).json["counts"]
    for group, numbers in scanned.items():
        both = {name: migrated["done"][group][name] + migrated["left"][group][name] for name in numbers}
        assert both == numbers
    assert migrated["done"]["code"]["total"] == migrated["done"]["code"]["rewrite"] == 1


def test_lines_in_a_text_are_those_of_the_file_as_it_is_now() -> None:
    files = [SimpleNamespace(path="a/b.py"), SimpleNamespace(path="c.py")]
    outcome = SimpleNamespace(
        written=True, rewrites=files, shown=lambda path: f"../{path}", line=lambda path, line: line + 10
    )
    text = "Line 3 stays; lines 4, 5 and 6 too, as c.py:7, ../a/b.py:8 and d.py:9 say; 3 files"
    told = Outcome.renumbered(cast(Outcome, outcome), "a/b.py", text)
    assert told == "Line 13 stays; lines 14, 15 and 16 too, as c.py:17, ../a/b.py:18 and d.py:9 say; 3 files"


def test_a_wrapper_of_the_lm_head_becomes_a_hook_which_is_a_finding_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "heads.py").write_text(HEAD + WRAPPER.format(name="output_layer"))
    done = unpatch("migrate", "--diff", "--unsafe-fixes", cwd=tmp_path)
    assert "+    model.output_layer.register_forward_hook(doubled)" in done.out
    assert "MCU106" in done.err


def test_edits_for_another_release_are_offered_where_a_release_is_in_their_way(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("megatron-core==0.17.0\n")
    (tmp_path / "kept.py").write_text(f"{HEAD}\n\ndef new(self):\n    pass\n\n\nGPTModel.set_input_tensor = new\n")
    assert "shows the edits" not in " ".join(unpatch("migrate", "--check", cwd=tmp_path).out.split())
    head = "from heads import Head\n\n\ndef critic(model: GPTModel):\n    model.output_layer = Head(8, 1)\n"
    (tmp_path / "critic.py").write_text(HEAD + head)
    for option, command in (("--diff", "migrate --diff"), ("--unsafe-fixes", "migrate --diff --unsafe-fixes")):
        done = unpatch("migrate", "--check", option, cwd=tmp_path)
        told = " ".join((done.out + done.err).split())
        assert f"`unpatch {command} --target-mcore 0.19.2` shows the edits for that release." in told


def test_two_names_on_one_line_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("megatron-core>=0.16\n")
    (tmp_path / "helpers.py").write_text(
        "from megatron.core.ssm import gated_delta_net\nimport other\n\n"
        "for name in ('tensor_a2a_cp2hp', 'tensor_a2a_hp2cp'):\n    if hasattr(gated_delta_net, name):\n"
        "        continue\n    setattr(gated_delta_net, name, getattr(other, name))\n"
    )
    told = " ".join(unpatch("migrate", "--check", cwd=tmp_path).out.split())
    for name in ("tensor_a2a_cp2hp", "tensor_a2a_hp2cp"):
        assert f"gated_delta_net.{name} `gated_delta_net.{name}` does not exist before megatron-core 0.18.0" in told


def test_sentences_begin_with_a_capital_and_paths_stay_as_they_are() -> None:
    assert (
        table._joined("it raises", "team/a.py:3: it stops.", "so be it") == "It raises. team/a.py:3: it stops. So be it"
    )
