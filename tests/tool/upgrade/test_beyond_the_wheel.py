"""Packages that only a checkout has on some releases: what becomes of a patch of them is not known, and is said so."""

from pathlib import Path

import pytest
from checking import write_files
from command import FINDINGS, unpatch

PATCH = """
    from megatron.training import training

    _orig = training.setup_model_and_optimizer

    def setup_model_and_optimizer(*args, **kwargs):
        return _orig(*args, **kwargs)

    training.setup_model_and_optimizer = setup_model_and_optimizer
"""
NOT_KNOWN = "megatron.training of megatron-core {} is not known: the wheel does not hold it"


@pytest.mark.parametrize(("old", "new", "lacks", "option"), [
    ("0.12.1", "0.19.2", "0.12.1", "--from"),
    ("0.19.2", "0.16.1", "0.16.1", "--to"),
])  # fmt: skip
def test_a_patch_of_what_a_wheel_lacks_is_not_harmless(
    tmp_path: Path, old: str, new: str, lacks: str, option: str
) -> None:
    write_files(tmp_path, PATCH)
    result = unpatch("upgrade", "--from", old, "--to", new, "--check", cwd=tmp_path)
    said = " ".join(result.out.split())
    assert NOT_KNOWN.format(lacks) in said and f"name a checkout with {option} PATH" in said
    assert (result.code, "does not exist" in said, "harmless" in said) == (FINDINGS, False, False)


@pytest.mark.parametrize(("module", "raises"), [("legacy", 0), ("legacy.model", 0), ("rl", 1)])
def test_a_folder_of_modules_is_a_package_without_an_init_too(tmp_path: Path, module: str, raises: int) -> None:
    write_files(tmp_path / "mlm/megatron", {
        "core/__init__.py": "", "core/package_info.py": "MAJOR = 0\nMINOR = 13\nPATCH = 0\n",
        "legacy/indexer.py": "", "legacy/model/bert.py": "",
    })  # fmt: skip
    write_files(tmp_path / "ours", f"import megatron.{module}\n")
    result = unpatch("upgrade", "--from", "0.12.0", "--to", "../mlm", "--output-format", "json", cwd=tmp_path / "ours")
    assert len(result.json["uses"]) == raises
