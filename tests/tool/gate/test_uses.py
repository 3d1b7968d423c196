"""A use of a downstream's patch is a finding as any other: selected, ignored, accepted, compared, and fixed."""

from __future__ import annotations

from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, FINDINGS, unpatch
from repository import Repository

USER = "from verl.models.mcore.model_forward_fused import patch_fused_forward\n"
MTP = "\n\nfrom verl.models.mcore.mtp_patch import patch_postprocess\n"
FLAG = """\
def f(model, x, kwargs):
    kwargs["return_logprobs_for_linear_ce_fusion"] = True
    return model(x, **kwargs)
"""
DEFINITION = """\
from megatron.core.models.gpt import GPTModel


def patch_fused_forward(model: GPTModel):
    model.forward = _log_probs.__get__(model, GPTModel)


def _log_probs(self, input_ids, labels=None, temperature=1.0):
    return self.decoder(input_ids)


def unpatch_fused_forward(model: GPTModel):
    del model.forward
"""


def repo(folder: Path, files: dict[str, str]) -> Path:
    """A git repository with these files."""
    Repository(folder).commit(files)
    return folder


def found(folder: Path, *options: str) -> list[tuple[str, int, str, str | None]]:
    """What a scan shows: file, line, rule and fix."""
    report = unpatch("scan", "--output-format", "json", *options, cwd=folder).json
    return [(one["path"], one["line"], one["rule"], one["fix"]) for one in report["findings"]]


def would_change(folder: Path, *options: str) -> bool:
    """Whether `migrate --check` fails."""
    return unpatch("migrate", "--check", *options, cwd=folder).code == FINDINGS


SHAPES = {
    "a name": (USER, 1, "MCU701"),
    "under another name": (USER.replace("\n", " as patch\n"), 1, "MCU701"),
    "in a function": (f"def f():\n    {USER}", 2, "MCU701"),
    "for types": (f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {USER}", 3, "MCU701"),
    "of a detach": ("from verl.models.mcore.mtp_patch import patch_mtp_layer_get_embeddings\n", 1, "MCU703"),
    "of a recomputation": (
        "from verl.models.mcore.mtp_patch import patch_mtp_layer_checkpointed_forward\n",
        1,
        "MCU704",
    ),
    "of the overlap": (
        "from verl.models.mcore.model_forward_1f1b_overlap import gptmodel_forward_1f1b_overlap\n",
        1,
        "MCU705",
    ),
    "of a class patch": (
        "from nemo_rl.distributed.model_utils import patch_gpt_model_forward_for_linear_ce_fusion as patch\n",
        1,
        "MCU706",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_use_is_found_and_fixed_as_it_says(name: str, tmp_path: Path) -> None:
    text, line, rule = SHAPES[name]
    folder = repo(tmp_path, {"a.py": text})
    assert found(folder) == [("a.py", line, rule, "safe")]
    assert unpatch("check", "--output-format", "json", cwd=folder).rules == [rule]
    assert would_change(folder)
    assert unpatch("migrate", cwd=folder).code == CLEAN
    assert found(folder) == []
    assert not would_change(folder)


@pytest.mark.parametrize(
    "text", [USER.replace("verl.models", "our.models"), USER.replace("patch_f", "f"), f'"""{USER}"""\n']
)
def test_other_names_are_none(text: str, tmp_path: Path) -> None:
    assert found(repo(tmp_path, {"a.py": text})) == []


@pytest.mark.parametrize("text", [f"{USER.strip()}  # unpatch: ignore[MCU701]\n", f"# unpatch: ignore[MCU7]\n{USER}"])
def test_a_comment_tells_it_to_stay_and_with_it_what_belongs_together(text: str, tmp_path: Path) -> None:
    undo = "from verl.models.mcore.model_forward_fused import unpatch_fused_forward\n"
    folder = repo(tmp_path, {"a.py": text, "b.py": undo, "c.py": MTP})
    assert found(folder) == [("b.py", 1, "MCU701", None), ("c.py", 3, "MCU702", "safe")]
    assert unpatch("migrate", "--unsafe-fixes", cwd=folder).code == CLEAN
    assert (folder / "a.py").read_text() == text
    assert (folder / "b.py").read_text() == undo
    assert "mcore_unpatch" in (folder / "c.py").read_text()


def test_a_comment_in_the_file_that_defines_it(tmp_path: Path) -> None:
    path = "verl/models/mcore/model_forward_fused.py"
    told = DEFINITION.replace("(model, GPTModel)", "(model, GPTModel)  # unpatch: ignore[MCU101]")
    folder = repo(tmp_path, {path: told, "a.py": USER})
    named = ("--select", "MCU1,MCU7")
    assert found(folder) == [("a.py", 1, "MCU701", None)]  # a function of the fork's own
    assert found(folder, *named) == [("a.py", 1, "MCU701", "unsafe")]
    assert unpatch("migrate", "--unsafe-fixes", *named, cwd=folder).code == CLEAN
    assert (folder / path).read_text() == told


def test_a_flag_that_is_told_to_stay_holds_the_patch(tmp_path: Path) -> None:
    told = FLAG.replace("= True", "= True  # unpatch: ignore[MCU706]")
    folder = repo(tmp_path, {"a.py": told, "b.py": FLAG})
    assert found(folder) == [("b.py", 2, "MCU706", None)]
    assert not would_change(folder, "--unsafe-fixes")


def test_the_shims_are_no_finding(tmp_path: Path) -> None:
    shim = "from mcore_unpatch.compat.verl.model_forward_fused import patch_fused_forward\n"
    files = {"rl/__init__.py": "", "rl/a.py": shim, "rl/b.py": "from rl.a import patch_fused_forward\n"}
    folder = repo(tmp_path, files)
    assert found(folder) == []
    assert not would_change(folder, "--unsafe-fixes")


def test_a_definition_without_a_patch_of_its_own_is_one_finding(tmp_path: Path) -> None:
    path = "verl/models/mcore/model_forward_fused.py"
    files = {path: "def fused_forward_model_gen():\n    pass\n\n\ndef fused_forward_qwen2_5_vl():\n    pass\n"}
    folder = repo(tmp_path, files)
    assert found(folder) == [(path, 1, "MCU701", None)]
    assert not would_change(folder, "--unsafe-fixes")
    assert not would_change(folder, "--unsafe-fixes", "--select", "MCU7")  # no copy of the original
    write_files(folder, {path: DEFINITION})
    assert found(folder, "--select", "MCU1,MCU7") == [(path, 5, "MCU101", None)]  # left as it is


def test_a_file_that_does_not_compile_is_left_and_says_so(tmp_path: Path) -> None:
    folder = repo(tmp_path, {"a.py": f"{USER}return 1\n", "b.py": MTP})
    assert found(folder) == [("a.py", 1, "MCU701", None), ("b.py", 3, "MCU702", "safe")]
    (folder / "b.py").unlink()
    assert not would_change(folder)


def test_a_file_with_odd_line_endings_is_one_like_any_other(tmp_path: Path) -> None:
    folder = repo(tmp_path, {"b.py": MTP})
    (folder / "a.py").write_bytes(USER.encode().replace(b"\n", b"\r") + b"x = 1\r")
    assert found(folder) == [("a.py", 1, "MCU701", "safe"), ("b.py", 3, "MCU702", "safe")]
    (folder / "b.py").unlink()
    assert would_change(folder)


def test_a_patch_elsewhere_counts_for_a_path_too(tmp_path: Path) -> None:
    other = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = ours\n"
    folder = repo(tmp_path, {"a/a.py": USER, "b/b.py": other})
    assert found(folder, "a") == [("a.py", 1, "MCU701", None)]
    assert not would_change(folder, "a")


@pytest.mark.parametrize("files", [{}, {"verl/models/mcore/model_forward_fused.py": DEFINITION}])
def test_a_test_of_the_function_itself_goes_on_with_it(files: dict[str, str], tmp_path: Path) -> None:
    reached = "import verl.models.mcore.model_forward_fused as mff\n\ndef test_it():\n    mff.patch_fused_forward(1)\n"
    folder = repo(tmp_path, {**files, "tests/test_it.py": reached})
    assert unpatch("check", "--output-format", "json", "tests", cwd=folder).json["findings"] == []
