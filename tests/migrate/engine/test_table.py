"""The end of a migration: its numbers are those of `scan`."""

from __future__ import annotations

from pathlib import Path

from command import unpatch

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


HELD = {
    "Dockerfile": "RUN pip install megatron-core==0.19.2\n",
    "a.py": "from verl.models.mcore.mtp_patch import patch_postprocess\n",
    "b.py": "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n",
    "old.py": "import megatron.core\nfrom megatron.core.models.gpt import GPTModel\n"
    "if megatron.core.__version__ < '0.13':\n    GPTModel.sharded_state_dict = print\n",
}


def test_the_numbers_are_those_of_scan(tmp_path: Path) -> None:
    for name, text in {**HELD, "models.py": TWO, "tests/a.py": STEPS}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    scanned = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["counts"]
    migrated = unpatch("migrate", "--check", "--output-format", "json", cwd=tmp_path).json["counts"]
    for group, numbers in scanned.items():
        both = {name: migrated["done"][group][name] + migrated["left"][group][name] for name in numbers}
        assert both == numbers
    assert migrated["done"]["code"]["total"]


def test_a_wrapper_of_the_lm_head_becomes_a_hook_which_is_a_finding_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "heads.py").write_text(HEAD + WRAPPER.format(name="output_layer"))
    done = unpatch("migrate", "--diff", "--unsafe-fixes", cwd=tmp_path)
    assert "+    model.output_layer.register_forward_hook(doubled)" in done.out
