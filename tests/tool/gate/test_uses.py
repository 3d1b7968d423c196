"""A use of a downstream's patch is a finding as any other: selected, ignored, accepted, compared, and fixed."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import CLEAN, FINDINGS, unpatch
from repository import Repository

USER = "from verl.models.mcore.model_forward_fused import patch_fused_forward\n"
MTP = "\n\nfrom verl.models.mcore.mtp_patch import patch_postprocess\n"
FLAG = """\
def f(model, x, kwargs):
    kwargs["return_logprobs_for_linear_ce_fusion"] = True
    return model(x, **kwargs)
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
    "for types": (f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {USER}", 3, "MCU701"),
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


@pytest.mark.parametrize("text", [f"{USER.strip()}  # unpatch: ignore[MCU701]\n", f"# unpatch: ignore[MCU7]\n{USER}"])
def test_a_comment_tells_it_to_stay_and_with_it_what_belongs_together(text: str, tmp_path: Path) -> None:
    undo = "from verl.models.mcore.model_forward_fused import unpatch_fused_forward\n"
    folder = repo(tmp_path, {"a.py": text, "b.py": undo, "c.py": MTP})
    assert found(folder) == [("b.py", 1, "MCU701", None), ("c.py", 3, "MCU702", "safe")]
    assert unpatch("migrate", "--unsafe-fixes", cwd=folder).code == CLEAN
    assert (folder / "a.py").read_text() == text
    assert (folder / "b.py").read_text() == undo
    assert "mcore_unpatch" in (folder / "c.py").read_text()


def test_a_flag_that_is_told_to_stay_holds_the_patch(tmp_path: Path) -> None:
    told = FLAG.replace("= True", "= True  # unpatch: ignore[MCU706]")
    folder = repo(tmp_path, {"a.py": told, "b.py": FLAG})
    assert found(folder) == [("b.py", 2, "MCU706", None)]
    assert not would_change(folder, "--unsafe-fixes")
