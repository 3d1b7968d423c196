"""A verdict says what becomes of a finding; one that never runs is deleted, by whomever."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checking import found_in, write_files
from command import unpatch

from mcore_unpatch.findings import reasons, verdicts
from mcore_unpatch.judge import traits
from mcore_unpatch.megatron.versions import RELEASES, parse_version
from mcore_unpatch.stacks.revision import Judged, Revision, Stack

OLD = "if version.parse(megatron.core.__version__) < version.parse('0.16'):\n        "
SOURCE = """\
import megatron.core
from megatron.core.transformer.attention import Attention
from packaging import version


def install():
    {}Attention.forward = print
"""


@pytest.mark.parametrize(
    ("guard", "pin", "verdict", "fix", "said"),
    [
        (OLD, "megatron-core>=0.18", "delete", "safe", "; `unpatch migrate` deletes it."),
        (
            OLD,
            "torch",
            "keep",
            None,
            "It is for other releases than megatron-core 0.19: whether one of them runs here",
        ),
        (OLD, "megatron-core==0.15.*", "keep", None, "`unpatch pin` tells when it changes again."),
        ("", "megatron-core>=0.18", "keep", None, "`unpatch pin` tells when it changes again."),
        (
            "if False:\n        ",
            "megatron-core>=0.18",
            "delete",
            None,
            "It never runs, whatever the release: the condition on line 7 is false as it stands.",
        ),
        (OLD.replace("< version.parse('0.16", ">= version.parse('9.16"), "torch", "keep", None, "It is for another"),
    ],
)
def test_a_patch_that_never_runs(
    tmp_path: Path, guard: str, pin: str, verdict: str, fix: str | None, said: str
) -> None:
    write_files(tmp_path, SOURCE.format(guard))
    (tmp_path / "requirements.txt").write_text(f"{pin}\n")
    [finding] = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert (finding["verdict"], finding["fix"]) == (verdict, fix)
    assert said in finding["evidence"]


def test_a_helper_that_asks_for_a_name_in_one_call_and_for_any_in_another(tmp_path: Path) -> None:
    helper = """\
from megatron.core import utils


def new(*args): ...


def put(module, name, value):
    if not hasattr(module, name):
        return
    setattr(module, name, value)


def install():
    for name in ("divide", "of_a_fork"):
        put(utils, name, new)
    put(utils, "of_another", new)
"""
    write_files(tmp_path, helper)
    *_, last = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert (last["target"], last["verdict"]) == ("megatron.core.utils.of_another", "keep")
    assert "It is for another Megatron" in last["evidence"]  # a fork may have it


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


def test_a_migration_ends_by_offering_a_pin_for_what_stays(tmp_path: Path) -> None:
    kept = (
        "from megatron.core.tensor_parallel.random import CheckpointFunction\n\nCheckpointFunction.backward = print\n"
    )
    write_files(tmp_path, {"patches.py": kept, "requirements.txt": "megatron-core==0.19.2\n"})
    said = unpatch("migrate", "--diff", cwd=tmp_path).err
    assert "Next: unpatch pin, which tells when Megatron changes under the patch that stays" in said
    gone = "from megatron.core.dist_checkpointing.strategies import base\n\nbase.async_calls = print\n"
    write_files(tmp_path, {"gone.py": gone})
    assert "under 1 of the 2 patches that stay" in " ".join(unpatch("migrate", "--diff", cwd=tmp_path).err.split())
    write_files(tmp_path, {"patches.py": "x = 1\n"})
    assert "Next: unpatch pin" not in unpatch("migrate", "--diff", cwd=tmp_path).err


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


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("model: GPTModel", "An official way exists: pass `output_processor=`"),
        ("model", "An official way exists, if this is Megatron's `GPTModel`: pass `output_processor=`"),
    ],
)
def test_a_way_for_an_object_that_a_name_tells_is_for_one_class(tmp_path: Path, model: str, said: str) -> None:
    """The model of another class may have an `output_layer`, and no processor of outputs."""
    source = "from megatron.core.models.gpt import GPTModel\n"
    source += f"def look({model}, hook):\n    model.output_layer.register_forward_hook(hook)\n"
    write_files(tmp_path, {"a.py": source, "requirements.txt": "megatron-core==0.18.0\n"})
    [finding] = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert finding["evidence"].startswith(said), finding["evidence"]


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ('megatron.core.__version__ >= "0.9.0"', True),
        ("'0.16' < megatron.core.__version__", True),
        ('version.parse(megatron.core.__version__) >= version.parse("0.16")', False),
        ('megatron.core.__version__ == "0.16.0"', False),
    ],
)
def test_versions_that_are_compared_as_text(tmp_path: Path, test: str, told: bool) -> None:
    write_files(tmp_path, {"a.py": SOURCE.format(f"if {test}:\n        ")})
    said = unpatch("scan", "--output-format", "json", "--target-mcore", "0.19.2", cwd=tmp_path).json["findings"]
    assert ["line 7 compares versions as text" in finding["message"] for finding in said] == [told]


def test_what_megatron_has_no_way_for_is_said_without_a_claim_about_others() -> None:
    """A subclass of the router that a ModuleSpec names would do too."""
    text = (
        "from megatron.core.transformer.moe.router import TopKRouter\n"
        "def new(self, routing_map, padding_mask=None): ...\nTopKRouter._apply_expert_bias = new\n"
    )
    found = found_in(text)
    for versions in (((0, 19, 2), (0, 20)), ((0, 18), (0, 19))):
        [finding] = verdicts.settled(found, {found[0].path: Judged((Stack(Revision("", versions)),))})
        assert finding.verdict == "keep"
        assert finding.evidence.startswith("The padding mask of the expert bias is fixed on Megatron's main branch")


META = """\
from megatron.core.extensions import transformer_engine
original = transformer_engine._get_extra_te_kwargs
def new(config):
    return {**original(config), "device": "meta"}
transformer_engine._get_extra_te_kwargs = new
"""


@pytest.mark.parametrize(
    ("required", "verdict", "evidence"),
    [
        ("==0.8.0", "keep", "An official way exists, but not on megatron-core before 0.12.0: set `config.init_model"),
        ("==0.8.0+megatron0.8.0", "keep", "An official way exists, but not on megatron-core before 0.12.0: set"),
        ("==0.12.0", "steps", "An official way exists: set `config.init_model_with_meta_device` (megatron-core 0.12+)"),
    ],
)
def test_what_came_with_the_oldest_known_release_is_no_way_on_an_older_one(
    tmp_path: Path, required: str, verdict: str, evidence: str
) -> None:
    write_files(tmp_path, {"a.py": META, "requirements.txt": f"megatron-core{required}\n"})
    [finding] = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert (finding["verdict"], finding["evidence"].startswith(evidence)) == (verdict, True), finding["evidence"]


def test_stacks_of_which_one_is_older_than_all_known_differ(tmp_path: Path) -> None:
    old = "FROM x\nRUN pip install megatron-core==0.8.0\n"
    write_files(tmp_path, {"a.py": META, "requirements.txt": "megatron-core==0.12.0\n", "Dockerfile": old})
    [finding] = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert {name: one["verdict"] for one in finding["stacks"] for name in one["stacks"]} == {
        "0.12.0": "steps",
        "0.8.0": "keep",
    }


@pytest.mark.parametrize(
    ("target", "guarded"),
    [("model.output_layer.forward", False), ("GPTModel.brand_new", True), ("gpt_model.brand_new", True)],
)
def test_what_is_pinned_as_absent_has_a_class_or_a_module(tmp_path: Path, target: str, guarded: bool) -> None:
    given = "from megatron.core.models.gpt import gpt_model\nfrom megatron.core.models.gpt.gpt_model import GPTModel\n"
    new = "def new(*given): return scaled(*given)\n"
    write_files(tmp_path, {"a.py": f"{given}{new}def patch(model: GPTModel):\n    {target} = new\n"})
    run = ("--target-mcore", "0.17.0")
    [finding] = unpatch("scan", "--output-format", "json", *run, cwd=tmp_path).json["findings"]
    if finding["verdict"] == "keep":
        assert ("`unpatch pin` tells" in finding["evidence"]) == guarded
    unpatch("pin", *run, cwd=tmp_path)
    assert (tmp_path / "unpatch.lock").exists() == guarded


def test_why_a_patch_stays_is_worked_out_once_whatever_the_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(reasons, "why", lambda finding, *_: asked.append(finding.target) or "Because")
    [finding] = found_in("from megatron.core import utils\nutils.is_te_min_version = print\n", target=None)
    assert finding.evidence.startswith("Because.")
    del asked[:]
    stacks = [Stack(Revision(one, (parse_version(one),))) for one in RELEASES]
    assert verdicts.on_stacks(finding, stacks).verdict == "keep"
    assert asked == []


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


def test_a_name_that_a_module_gets_is_no_method() -> None:
    given = "from megatron.core.models.gpt.gpt_model import GPTModel\ndef new(): ...\n"
    [finding] = found_in(f"{given}setattr(GPTModel, 'brand_new', new)\n", target=None)
    assert finding.rule == "MCU404"
    put: Any = SimpleNamespace(owner="megatron.core.utils", attribute="brand_new")
    nothing: Any = None
    assert not traits._has_own_name(put, nothing, nothing)
