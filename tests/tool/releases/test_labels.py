"""On real releases every patch that was looked at by hand is found, with its seam, and nothing else is."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from checking import GPT, MTP_LAYER
from downloads import unpacked

from mcore_unpatch.findings.finding import DOWNSTREAM, Finding, Report
from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import ScanOptions

pytestmark = pytest.mark.slow
LABELS = Path(__file__).parents[1] / "labels"
VERL = ("0.7.1", "0.8.0", "0.9.1")
NODE = "megatron.core.models.common.utils.PostProcessNode"
MCORE = "verl/models/mcore"

# The patches these projects are known for: (path, target, seam).
FUSED = (f"{MCORE}/model_forward_fused.py", f"{GPT}.forward", "output")
SCHEDULE = {
    (f"{MCORE}/model_forward_1f1b_overlap.py", f"{NODE}.forward_impl", "schedule"),
    (f"{MCORE}/model_forward_1f1b_overlap.py", f"{GPT}._postprocess", "schedule"),
}
MTP = {
    (f"{MCORE}/mtp_patch.py", f"{GPT}._postprocess", "mtp"),
    (f"{MCORE}/mtp_patch.py", f"{MTP_LAYER}._get_embeddings", "mtp"),
}
CHECKPOINTED = (f"{MCORE}/mtp_patch.py", f"{MTP_LAYER}._checkpointed_forward", "mtp")
WELL_KNOWN = {
    "verl-0.7.1": {FUSED, *SCHEDULE, *MTP},
    "verl-0.8.0": {FUSED, *SCHEDULE, *MTP, CHECKPOINTED},
    "verl-0.9.1": {FUSED, *SCHEDULE, *MTP, CHECKPOINTED},
    "nemo-rl": {("nemo_rl/distributed/model_utils.py", f"{GPT}.forward", "output")},
}


FACTS = {"patches": ("path", "line", "target", "shape", "seam"), "uses": ("path", "line", "rule", "target")}


def labels(name: str, kind: str = "patches") -> list[dict[str, Any]]:
    """A list of one project: its patches, or its uses of a patch that is known by name."""
    found: list[dict[str, Any]] = json.loads((LABELS / f"{name}.json").read_text())[kind]
    return found


@cache
def scanned(folder: Path) -> Report:
    """A whole project, scanned once."""
    return scan([folder], ScanOptions())


def found(report: Report) -> list[Finding]:
    """What is found, with what the newest Megatron, for which a wheel is judged, does not run any more."""
    return sorted([*report.findings, *report.done], key=lambda one: (one.path, one.line))


def check(folder: Path, name: str) -> None:
    """The scanner finds what is labelled, and nothing else."""
    report = scanned(folder)
    assert report.errors == []
    for kind, facts in FACTS.items():
        findings = [one for one in found(report) if (one.shape in DOWNSTREAM) is (kind == "uses")]
        assert [{fact: getattr(one, fact) for fact in facts} for one in findings] == labels(name, kind)


@pytest.mark.parametrize("name", WELL_KNOWN)
def test_the_well_known_patches_are_labelled(name: str) -> None:
    assert WELL_KNOWN[name] <= {(label["path"], label["target"], label["seam"]) for label in labels(name)}


@pytest.mark.parametrize("version", VERL)
def test_verl(version: str) -> None:
    check(unpacked("verl", version), f"verl-{version}")


def test_nemo_rl() -> None:
    """NeMo RL is in no package index: the checkout is named by the environment."""
    checkout = os.environ.get("MCORE_UNPATCH_NEMO_RL")
    if not checkout:
        pytest.skip("MCORE_UNPATCH_NEMO_RL names no checkout of NeMo RL")
    commit = json.loads((LABELS / "nemo-rl.json").read_text())["commit"]
    if not subprocess.check_output(["git", "-C", checkout, "rev-parse", "HEAD"], text=True).startswith(commit):
        pytest.skip("no checkout at the commit of its labels")
    check(Path(checkout), "nemo-rl")


VERL_LIVES = {
    f"{MCORE}/model_forward_fused.py": [">=0.13.0,<=0.17.1"],
    f"{MCORE}/mtp_patch.py": ["any", "any", "<=0.17.1"],
    f"{MCORE}/patch.py": [">=0.16.0", "<=0.12.3", "<=0.16.1", "<=0.12.3", "==0.12.1", ">=0.16.0", "any"],
    "verl/utils/megatron/router_replay_patch.py": ["<=0.13.1", ">=0.14.0", ">0.19.2", ">0.19.2", *["any"] * 4],
}


def test_the_releases_on_which_patches_of_verl_live() -> None:
    findings = found(scanned(unpacked("verl", "0.9.1")))
    assert {path: [str(f.live) for f in findings if f.path == path] for path in VERL_LIVES} == VERL_LIVES
    assert not any("TypeError" in f.message for f in findings if not f.live.on((0, 19)))


VERL_SAYS = {
    ("0.7.1", f"{MCORE}/mtp_patch.py", f"{GPT}._postprocess"): "`is_spec_decode`",
    ("0.8.0", f"{MCORE}/mtp_patch.py", f"{GPT}._postprocess"): "`padding_mask`",
    ("0.9.1", f"{MCORE}/mtp_patch.py", f"{GPT}._postprocess"): "hooks are silently dropped",
    ("0.9.1", f"{MCORE}/model_forward_1f1b_overlap.py", f"{GPT}._postprocess"): "`padding_mask`",
    ("0.9.1", f"{MCORE}/model_forward_1f1b_overlap.py", f"{NODE}.forward_impl"): "no effect",
    ("0.8.0", f"{MCORE}/mtp_patch.py", f"{MTP_LAYER}._get_embeddings"): "TypeError",
    ("0.8.0", f"{MCORE}/mtp_patch.py", f"{MTP_LAYER}._checkpointed_forward"): "TypeError",
}


@pytest.mark.parametrize(("version", "path", "target"), VERL_SAYS)
def test_what_breaks_in_verl(version: str, path: str, target: str) -> None:
    release = (0, 17) if version == "0.7.1" else (0, 19)
    folder = unpacked("verl", version)
    report = scan([folder / path], ScanOptions(target=release))
    (said,) = [finding.message for finding in report.findings if finding.target == target]
    assert VERL_SAYS[version, path, target] in said
