"""Packages that only a checkout has on some releases: what becomes of a patch of them is not known, and is said so."""

from pathlib import Path

import pytest
from between_releases import affected
from checking import write_files
from command import ERROR, FINDINGS, unpatch

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


def test_scan_and_pin_say_that_the_wheel_does_not_hold_it(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": PATCH, "requirements.txt": "megatron-core==0.12.1\n"})
    (finding,) = unpatch("scan", "--output-format", "json", cwd=tmp_path).json["findings"]
    assert finding["verdict"] == "keep"
    assert finding["message"] == "replaces `training.setup_model_and_optimizer` in its module"
    assert finding["evidence"].startswith("The wheel of megatron-core 0.12 lacks megatron.training. On 0.17: ")
    pinned = unpatch("pin", cwd=tmp_path)
    assert pinned.code == ERROR
    assert "does not hold megatron.training; pin it with --target-mcore PATH" in " ".join(pinned.err.split())


def test_what_the_newer_source_alone_lacks_is_told_as_not_read(tmp_path: Path) -> None:
    for package in ("core", "legacy", "inference"):
        (tmp_path / f"older/megatron/{package}").mkdir(parents=True)
        (tmp_path / f"older/megatron/{package}/__init__.py").write_text("class BertModel: pass\n")
    (tmp_path / "older/megatron/core/package_info.py").write_text("MAJOR = 0\nMINOR = 15\nPATCH = 0\n")
    write_files(tmp_path / "ours", "from megatron.legacy import BertModel\nfrom megatron.inference import BertModel\n")
    result = unpatch("upgrade", "--from", str(tmp_path / "older"), "--to", "0.19.2", cwd=tmp_path / "ours")
    uses = "1 use of megatron.legacy, 1 use of megatron.inference"
    said = f"what changed for {uses}, which the wheel of megatron-core 0.19.2 does not hold"
    assert f"Not read: {said}; `--to PATH` reads a checkout." in " ".join(result.out.split())


@pytest.mark.parametrize(("package", "raises"), [("megatron.training.tokenizer", False), ("megatron.core.none", True)])
def test_what_stands_in_for_what_a_wheel_lacks_may_not_be_needed(package: str, raises: bool) -> None:
    text = f"""
try:
    from {package} import build_tokenizer
except ImportError:
    from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer  # since 0.17
"""
    assert [use.kind for use in affected(text, "0.15.0", "0.16.1")] == ["raises"] * raises


@pytest.mark.parametrize(("module", "raises"), [("legacy", 0), ("legacy.model", 0), ("rl", 1)])
def test_a_folder_of_modules_is_a_package_without_an_init_too(tmp_path: Path, module: str, raises: int) -> None:
    write_files(tmp_path / "mlm/megatron", {
        "core/__init__.py": "", "core/package_info.py": "MAJOR = 0\nMINOR = 13\nPATCH = 0\n",
        "legacy/indexer.py": "", "legacy/model/bert.py": "",
    })  # fmt: skip
    write_files(tmp_path / "ours", f"import megatron.{module}\n")
    result = unpatch("upgrade", "--from", "0.12.0", "--to", "../mlm", "--output-format", "json", cwd=tmp_path / "ours")
    assert len(result.json["uses"]) == raises


def test_what_moved_out_of_such_a_package_is_told_and_mended(tmp_path: Path) -> None:
    moved = {
        "megatron.training.optimizer_param_scheduler": "megatron.core.optimizer_param_scheduler",
        "megatron.training.utils": "megatron.core.utils",  # which a wheel held later
        "megatron.training": "megatron.core.num_microbatches_calculator",
    }
    names = ["OptimizerParamScheduler", "unwrap_model", "get_num_microbatches"]
    before, after = (
        "".join(f"from {module} import {name}\n" for module, name in zip(modules, names, strict=True))
        for modules in (moved, moved.values())
    )
    write_files(tmp_path, before)
    (file,) = tmp_path.glob("*.py")
    asked = ("upgrade", "--from", "0.12.0", "--to", "0.19.2", "--write")
    assert "Use --allow-no-vcs to write anyway" in " ".join(unpatch(*asked, cwd=tmp_path).err.split())
    told = unpatch(*asked, "--allow-no-vcs", cwd=tmp_path)
    assert "it is now `megatron.core.optimizer_param_scheduler.OptimizerParamScheduler`" in " ".join(told.out.split())
    assert file.read_text() == after
