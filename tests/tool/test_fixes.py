"""`fix` in the JSON report is what `unpatch migrate` does."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checking import write_files
from command import FINDINGS, unpatch

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.survey import detect
from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import ScanOptions, Survey

SAMPLE = Path(__file__).parents[2] / "examples" / "tiny_rl"


def fixes(folder: Path) -> dict[str, str | None]:
    report = scan([folder], replace(ScanOptions(), fixes=True))
    return {f"{finding.path}:{finding.line}": finding.fix for finding in report.findings}


def test_what_a_person_has_to_do_has_no_fix_and_a_mechanical_edit_is_unsafe(tmp_path: Path) -> None:
    # A project of its own: what else the repository around a folder holds counts too.
    assert fixes(shutil.copytree(SAMPLE, tmp_path / "sample")) == {
        "tiny_rl/linear_ce.py:3": "safe",
        "tiny_rl/linear_ce.py:12": "safe",
        "tiny_rl/megatron/critic.py:9": None,
        "tiny_rl/megatron/fused_forward.py:14": None,
        "tiny_rl/megatron/lm_head.py:9": None,
        "tiny_rl/megatron/mtp.py:8": None,
        "tiny_rl/megatron/mtp.py:11": None,
        "tiny_rl/trainer.py:3": "safe",
        "tiny_rl/trainer.py:4": "safe",
    }


def test_fixes_are_asked_for_only_where_they_are_shown() -> None:
    assert {finding.fix for finding in scan([SAMPLE], ScanOptions()).findings} == {None}


def test_without_a_seam_the_codemods_are_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import megatron.core.utils as u\nu.get_model_config = lambda m: None\n")
    report = scan([tmp_path], replace(ScanOptions(), fixes=True))
    assert [(finding.rule, finding.fix) for finding in report.findings] == [("MCU602", None)]


def test_a_patch_that_never_runs_and_has_no_seam_is_fixed_as_it_is_migrated(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "pyproject.toml": '[project]\nname = "a"\nversion = "1"\ndependencies = ["megatron-core==0.19.2"]\n',
            "a.py": (
                "import megatron.core\nfrom megatron.core import utils\nfrom packaging.version import Version\n\n"
                'if Version(megatron.core.__version__) < Version("0.14"):\n    utils.get_model_config = print\n'
            ),
        },
    )
    assert fixes(tmp_path) == {"a.py:6": "safe"}
    assert unpatch("migrate", "--check", cwd=tmp_path).code == FINDINGS


def test_after_a_change_only_what_reads_it_is_analysed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core, own = "from megatron.core.models.gpt import GPTModel\n", "from models import Model\nModel.forward = print\n"
    files = {"models.py": f"{core}Model = GPTModel\n", "a.py": own, "b.py": f"{core}GPTModel.forward = print\n"}
    write_files(tmp_path, files)
    survey, looked = Survey([tmp_path], ScanOptions()), list[str]()
    findings_in = detect.findings_in

    def looking(resolver: Resolver, *rest: Any) -> list[Finding]:
        looked.append(resolver.model.path)
        return findings_in(resolver, *rest)

    monkeypatch.setattr(detect, "findings_in", looking)
    for model, found in {"GPTModel": ["a.py", "b.py"], "print": ["b.py"]}.items():
        findings, errors = survey.rescan({"models.py": f"{core}Model = {model}\n".encode()})
        assert ([finding.path for finding in findings], errors) == (found, [])
    assert looked == ["a.py", "a.py"]
