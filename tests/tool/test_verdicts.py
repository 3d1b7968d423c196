"""A verdict says what becomes of a finding; one that never runs is deleted, by whomever."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from checking import found_in, write_files
from command import unpatch


def test_a_line_that_patches_several_names_is_deleted_only_for_all_of_them(tmp_path: Path) -> None:
    loop = """\
from megatron.core.transformer.moe import experts


def install():
    for name in ("GroupedMLP", "TEGroupedMLP"):
        setattr(getattr(experts, name), "forward", lambda *args: None)
"""
    write_files(tmp_path, loop)
    gone, there = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert (gone["target"].split(".")[-2], gone["verdict"]) == ("GroupedMLP", "keep")
    assert "Line 6 stays for `TEGroupedMLP.forward`." in gone["evidence"]
    assert there["verdict"] == "steps"
    write_files(tmp_path, loop.replace(', "TEGroupedMLP")', ",)"))
    [gone] = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert gone["verdict"] == "delete"


def test_every_format_gives_the_same_reason(tmp_path: Path) -> None:
    write_files(tmp_path, "from megatron.core import parallel_state\nparallel_state.create_group = print\n")
    [finding] = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"]
    said = finding["evidence"]
    assert "Changed in 0.15; `unpatch pin` tells when it changes again." in said
    [result] = unpatch("scan", "--output-format", "sarif", cwd=tmp_path).json["runs"][0]["results"]
    assert (result["properties"]["verdict"], result["properties"]["evidence"]) == ("keep", said)
    assert f"keep: {said}" in " ".join(unpatch("scan", "--verbose", cwd=tmp_path).out.split())
    page = unpatch("scan", "--output-format", "html", cwd=tmp_path).out
    assert said.replace("`", "") in re.sub(r"`|</?code>", "", page)


def test_a_way_of_a_later_release_is_not_said_to_be_none(tmp_path: Path) -> None:
    patch = """
        from megatron.core.models.gpt import GPTModel

        def fast(self, input_ids, position_ids, attention_mask, labels=None, **kwargs):
            return self.log_probs(self.decoder(input_ids), labels)

        GPTModel.forward = fast
        """
    write_files(tmp_path, {"patches.py": patch, "requirements.txt": "megatron-core==0.16.1\n"})
    [finding] = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert finding["evidence"].startswith("An official way exists, but not on megatron-core 0.16.1: pass `output_pro")


META = """\
from megatron.core.extensions import transformer_engine
original = transformer_engine._get_extra_te_kwargs
def new(config):
    return {**original(config), "device": "meta"}
transformer_engine._get_extra_te_kwargs = new
"""


def test_stacks_of_which_one_is_older_than_all_known_differ(tmp_path: Path) -> None:
    old = "FROM x\nRUN pip install megatron-core==0.8.0\n"
    write_files(tmp_path, {"a.py": META, "requirements.txt": "megatron-core==0.12.0\n", "Dockerfile": old})
    [finding] = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert {name: one["verdict"] for one in finding["stacks"] for name in one["stacks"]} == {
        "0.12.0": "steps",
        "0.8.0": "keep",
    }


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("register_patch('megatron.core.mpu', megatron.core.parallel_state)", "delete"),
        ("megatron.core.mpu = megatron.core.parallel_state", "delete"),
        ("megatron.core.mpu = megatron.core.utils", "keep"),
        ("megatron.core.utils.get_pg_size = megatron.core.utils.get_pg_rank", "keep"),
        # Just that only where Apex is not installed.
        (
            "megatron.core.models.gpt.gpt_layer_specs.LNImpl = megatron.core.transformer.torch_norm.WrappedTorchNorm",
            "steps",
        ),
    ],
)
def test_what_is_set_to_what_is_there_changes_nothing(line: str, verdict: str) -> None:
    modules = ("utils", "parallel_state", "models.gpt.gpt_layer_specs", "transformer.torch_norm")
    heads = "".join(f"import megatron.core.{one}\n" for one in modules)
    (finding,) = found_in(f"{heads}def install():\n    {line}\n")
    assert (finding.verdict, finding.fix) == (verdict, None)
    assert ("it changes nothing, unless it takes another patch off" in finding.evidence) is (verdict == "delete")
