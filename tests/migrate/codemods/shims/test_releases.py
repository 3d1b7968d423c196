"""Whole trees of real releases: what changes is what was reviewed, and nothing of the migrated rules is left."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import releases
from planning import Result, migrate

from mcore_unpatch.codemods.registry import own
from mcore_unpatch.editing.edits import Options
from mcore_unpatch.findings.rules import Selection

pytestmark = pytest.mark.slow
REVIEWED = json.loads((Path(__file__).parents[1] / "reviewed.json").read_text(encoding="utf-8"))
DEFINITIONS = {"model_forward_fused.py", "mtp_patch.py", "model_forward_1f1b_overlap.py"}
FUSED = "verl/models/mcore/model_forward_fused.py"


def moved(release: str) -> set[str]:
    """The files whose patches go; the fused forward of 0.9 stands on the hook."""
    return DEFINITIONS - ({"model_forward_fused.py"} if release == "0.9.1" else set())


@pytest.mark.parametrize("release", releases.VERL)
def test_verl_changes_as_reviewed(release: str, migrated: Callable[[str], Result]) -> None:
    before, result = releases.verl(release), migrated(release)
    for path in result.changed:
        compile(result.files[path], path, "exec", dont_inherit=True)
    assert sorted(result.changed) == REVIEWED[f"verl {release}"]["files"]
    assert releases.digest(before, result.files) == REVIEWED[f"verl {release}"]["diff"]
    # No file of a wheel says which Megatron veRL is for: that old branches never run takes consent, as value heads do.
    unsafe = {edit.title for edit in result.plan.edits if edit.applicability != "safe"}
    value_head = next(one.does for one in own() if one.name == "value-heads")
    deletions = {"deletes what never runs", "deletes what Megatron does not need"}
    assert unsafe <= {*deletions, "an import that nothing uses any more", value_head}


@pytest.mark.parametrize("release", releases.VERL)
def test_nothing_is_left_in_verls_files(release: str, migrated: Callable[[str], Result]) -> None:
    result = migrated(release)
    assert [finding for finding in result.before if finding.path.rpartition("/")[2] in moved(release)]
    assert not [finding for finding in result.after if finding.path.rpartition("/")[2] in moved(release)]
    others = [f for f in result.before if f not in result.plan.removes]
    assert sorted((f.path, f.rule, f.target) for f in others) == sorted(
        (f.path, f.rule, f.target) for f in result.after
    )
    assert not result.remarks("differs")
    assert result.plan.requirement == "megatron-core>=0.18"
    assert result.plan.dependency == "mcore-unpatch[compat]"


@pytest.mark.parametrize("release", releases.VERL)
def test_the_files_are_re_exports_of_every_public_name(release: str, migrated: Callable[[str], Result]) -> None:
    before, result = releases.verl(release), migrated(release)
    for path in before:
        if path.rpartition("/")[2] in moved(release):
            defined = {
                node.name for node in ast.parse(before[path]).body if isinstance(node, ast.FunctionDef | ast.ClassDef)
            }
            public = {name for name in defined if not name.startswith("_")}
            tree = ast.parse(result.files[path])
            imported, listed = tree.body
            assert isinstance(imported, ast.ImportFrom)
            assert public == {alias.name for alias in imported.names} == set(ast.literal_eval(listed.value))


def test_the_guard_is_told_and_no_numbers_change(migrated: Callable[[str], Result]) -> None:
    result = migrated("0.7.1")
    lines = {path: data.decode().splitlines() for path, data in releases.verl("0.7.1").items()}
    unused = {remark.path for remark in result.plan.remarks if "delete this file" in remark.text}
    assert {path.rpartition("/")[2] for path in unused} == DEFINITIONS  # all callers have the shims themselves
    guards = [lines[path][line - 1] for path, line in result.remarks("guard") if path not in unused]
    assert [guard for guard in guards if "mtp" not in guard] == ["def postprocess_packed_seqs_for_dict_output("]
    assert len(guards) == 3, "and the helper that only the patches used"
    assert not result.remarks("numerics")


@pytest.mark.parametrize("release", releases.VERL)
def test_a_cut_at_every_depth_stays_one(release: str, migrated: Callable[[str], Result]) -> None:
    """veRL 0.7 detaches the hidden states before each MTP layer, later releases before the first alone."""
    calls = [
        node
        for data in migrated(release).files.values()
        if b"patch_mtp_layer_get_embeddings" in data
        for node in ast.walk(ast.parse(data))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "patch_mtp_layer_get_embeddings"
    ]
    kept = [ast.unparse(call).endswith(", every_depth=True)") for call in calls]
    assert kept == {"0.7.1": [True, True], "0.8.0": [False], "0.9.1": [False]}.get(release, [])


FORKED = "verl/models/mcore/mtp_patch.py"


def forked(*names: str) -> dict[str, bytes]:
    """veRL, or some files of it, with two statements of the MTP loss changed, as a fork would."""
    files = releases.patched_part("0.8.0", *names)
    old = b"mtp_loss_scale = self.config.mtp_loss_scaling_factor / self.config.mtp_num_layers"
    assert files[FORKED].count(old) == 1
    new = b"mtp_loss_scale = 0.5 * self.config.mtp_loss_scaling_factor\n                our_log(mtp_loss_scale)"
    files[FORKED] = files[FORKED].replace(old, new)
    return files


def test_a_changed_body_is_left_and_shown() -> None:
    result = migrate(forked())
    text = result.files[FORKED].decode()
    assert "def patch_postprocess" in text
    assert "def _megatron_gptmodel_postprocess" in text
    assert "def patch_mtp_layer_get_embeddings" not in text
    [remark] = [remark for remark in result.plan.remarks if remark.kind == "differs"]
    assert "`_megatron_gptmodel_postprocess`" in remark.text
    assert "0.8.0, 3 lines differ" in remark.text
    assert "+                our_log(mtp_loss_scale)\n" in remark.detail
    assert "-(upstream lines " in remark.detail
    left = [remark for remark in result.plan.remarks if remark.kind == "left"]
    assert {remark.path for remark in left} == {
        FORKED,
        "verl/utils/megatron_utils.py",
        "verl/workers/engine/megatron/transformer_impl.py",
    }
    caller = result.files["verl/utils/megatron_utils.py"].decode()
    assert "from verl.models.mcore.mtp_patch import patch_postprocess\n" in caller
    assert "from mcore_unpatch.compat.verl.mtp_patch import patch_mtp_layer_checkpointed_forward, " in caller


def test_a_changed_body_goes_when_asked_for() -> None:
    result = migrate(forked("mtp_patch.py"), Options(unsafe_fixes=True, selection=Selection(("MCU2", "MCU7"))))
    assert result.files[FORKED] == migrate(releases.patched_part("0.8.0", "mtp_patch.py")).files[FORKED]
    assert {edit.applicability for edit in result.plan.edits if edit.path == FORKED} == {"unsafe"}
    assert result.remarks("differs")
    [numbers] = [remark.text for remark in result.plan.remarks if remark.kind == "numerics"]
    lost = "what differs in `_megatron_gptmodel_postprocess` is lost"
    assert numbers == f"`patch_postprocess` now computes what verl does: {lost}"


def test_a_body_with_parts_left_out_goes_with_consent() -> None:
    files = releases.patched_part("0.8.0", "mtp_patch.py")
    whole = migrate(files).files[FORKED]
    line = b"mtp_loss_scale = self.config.mtp_loss_scaling_factor / self.config.mtp_num_layers"
    files[FORKED] = re.sub(rb" *" + re.escape(line) + rb"\n", b"", files[FORKED])
    assert b"def patch_postprocess" in migrate(files).files[FORKED]
    result = migrate(files, Options(unsafe_fixes=True))
    assert result.files[FORKED] == whole
    [numbers] = [remark.text for remark in result.plan.remarks if remark.kind == "numerics"]
    lost = "what differs in `_megatron_gptmodel_postprocess` is lost"
    assert numbers == f"`patch_postprocess` now computes what verl does: {lost}"
    files[FORKED] = files[FORKED].replace(b"def patch_postprocess", b"@ours\ndef patch_postprocess")
    assert b"def patch_postprocess" in migrate(files, Options(unsafe_fixes=True)).files[FORKED]


def test_comments_docstrings_and_annotations_change_no_body() -> None:
    files = releases.patched_part("0.8.0", "mtp_patch.py")
    text = files[FORKED].decode()
    text = text.replace("from typing import Callable", "from collections.abc import Callable")
    text = text.replace(
        "def patch_postprocess(model: torch.nn.Module):",
        'def patch_postprocess(model) -> None:\n    """Ours."""\n    # ours',
    )
    files[FORKED] = text.encode()
    assert migrate(files).files[FORKED] == migrate(releases.patched_part("0.8.0", "mtp_patch.py")).files[FORKED]


def test_another_kernel_under_the_same_name_is_a_change() -> None:
    files = releases.patched_part("0.8.0", "model_forward_fused.py", "util.py")
    path = "verl/models/mcore/model_forward_fused.py"
    files[path] = files[path].replace(
        b"from verl.utils.kernel.linear_cross_entropy import", b"from verl.our_kernel import"
    )
    result = migrate(files, Options(unsafe_fixes=True))
    assert "linear_cross_entropy" in {r.text.split("`")[1] for r in result.plan.remarks if r.kind == "differs"}
    assert b"def fused_forward_model_gen" in files[path]
    assert b"def patch_fused_forward" in result.files[path]
    files[path] = files[path].replace(b"from verl.our_kernel", b"from verl.utils.ops.kernel.linear_cross_entropy")
    assert b"def patch_fused_forward" not in migrate(files, Options(unsafe_fixes=True)).files[path]  # only moved


def test_a_changed_helper_is_a_change() -> None:
    files = releases.patched_part("0.8.0", "model_forward_fused.py", "util.py", "registry.py", "__init__.py")
    path = "verl/models/mcore/util.py"
    files[path] = files[path].replace(b"def preprocess_packed_seqs(\n", b"def preprocess_packed_seqs(\n    *,\n")
    result = migrate(files)
    assert ("verl/models/mcore/util.py", "differs") in {(r.path, r.kind) for r in result.plan.remarks}
    fused = result.files["verl/models/mcore/model_forward_fused.py"]
    assert b"def fused_forward_model_gen" in fused
    assert b"def patch_fused_forward" in fused  # what is called and what it relies on move together
    registry = "verl/models/mcore/registry.py"
    assert b"from .model_forward_fused import" in result.files[registry]
    [told] = {one.replacement for one in result.before if one.path == registry}  # as `scan` has it
    assert told.startswith("`preprocess_packed_seqs` here differs from verl's in ")
    assert "port that first (`unpatch migrate --diff` shows it), then import them from `mcore_unpatch.compat" in told


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("utils/kernel/linear_cross_entropy.py", b"should_return_fp32_grad = False", b"should_return_fp32_grad = True"),
        ("utils/kernel/kernels.py", b"_use_triton: bool = True", b"_use_triton: bool = False"),
        ("models/mcore/util.py", b"align_size * 128", b"align_size * 64"),  # a helper's helper
    ],
)
def test_what_a_shim_has_its_own_of_is_compared_down_to_the_kernels(file: str, old: bytes, new: bytes) -> None:
    files = {
        path: data
        for path, data in releases.verl("0.8.0").items()
        if path.endswith(("mcore/model_forward_fused.py", "mcore/util.py")) or "utils/kernel/" in path
    }
    assert b"def patch_fused_forward" not in migrate(files).files[FUSED]
    path = f"verl/{file}"
    changed = files | {path: files[path].replace(old, new)}
    assert changed != files
    result = migrate(changed, Options(unsafe_fixes=True))
    assert b"def patch_fused_forward" in result.files[FUSED]
    assert (path, "differs") in {(remark.path, remark.kind) for remark in result.plan.remarks}


def test_a_fork_under_another_name_and_in_another_place() -> None:
    files = {
        f"third_party/ours/{path.removeprefix('verl/')}": data.replace(b"verl.", b"ours.")
        for path, data in releases.patched_part("0.8.0").items()
    }
    result = migrate(files)
    expected = {path.replace("verl/", "third_party/ours/", 1) for path in REVIEWED["verl 0.8.0"]["files"]}
    assert result.changed == expected
    assert not result.remarks("differs")


def test_a_fork_that_names_itself_from_above() -> None:
    """A package inside another imports itself by `....verl`; one import too many dots away still names the file."""
    files = releases.patched_part("0.8.0", "model_forward_fused.py", "util.py")
    text = files[FUSED].replace(b"from verl.", b"from ....verl.")
    assert text != files[FUSED]
    whole = migrate(files)
    assert [remark.line for remark in whole.plan.remarks if "delete this file" in remark.text]
    files |= {
        FUSED: text,
        "verl/workers/actor/a.py": b"from ...verl.models.mcore.model_forward_fused import patch_fused_forward\n",
    }
    result = migrate(files)
    assert b"def patch_fused_forward" not in result.files[FUSED]
    assert not [remark for remark in result.plan.remarks if remark.kind in ("differs", "numerics")]
    assert not [remark for remark in result.plan.remarks if "delete this file" in remark.text]


def test_a_private_name_that_is_used_elsewhere_stays() -> None:
    files = releases.patched_part("0.8.0", "model_forward_fused.py", "util.py")
    files["verl/ours.py"] = b"from verl.models.mcore.model_forward_fused import _fused_GPTModel_forward, unwrap_model\n"
    result = migrate(files)
    text = result.files["verl/models/mcore/model_forward_fused.py"].decode()
    assert "def _fused_GPTModel_forward" in text
    assert "import unwrap_model" in text
    assert "def patch_fused_forward" not in text


def test_what_stands_on_the_hook_is_left_alone_and_an_offer_is_made(migrated: Callable[[str], Result]) -> None:
    before, result = releases.verl("0.9.1"), migrated("0.9.1")
    assert result.files[FUSED] == before[FUSED]
    assert result.files["verl/models/mcore/registry.py"] == before["verl/models/mcore/registry.py"]
    engine = result.files["verl/workers/engine/megatron/transformer_impl.py"]
    assert b"from verl.models.mcore.model_forward_fused import patch_fused_forward\n" in engine
    [stays, fallback] = [remark for remark in result.plan.remarks if remark.path == FUSED]
    assert stays.kind == fallback.kind == "left"
    assert "`output_processor` already" in stays.text
    assert (
        "`unpatch migrate --select MCU1,MCU7 --unsafe-fixes` puts the shim in its place: fused kernels with MTP on"
        in stays.text
    )
    lines = before[FUSED].decode().splitlines()
    assert lines[fallback.line - 1].strip().startswith("model.forward = ")
    assert "this never runs on megatron-core 0.19" in fallback.text
    part = releases.patched_part("0.9.1", "model_forward_fused.py", "util.py")
    assert migrate(part, Options(unsafe_fixes=True)).files[FUSED] == before[FUSED]
    asked = migrate(part, Options(unsafe_fixes=True, selection=Selection(("MCU1", "MCU7"))))
    assert b"def " not in asked.files[FUSED]
    assert {edit.applicability for edit in asked.plan.edits if edit.path == FUSED} == {"unsafe"}


def test_nemo_rl_changes_as_reviewed() -> None:
    before = releases.nemo_rl()
    result = migrate(before)
    reviewed = {one["diff"]: one["files"] for name, one in REVIEWED.items() if name.startswith("nemo_rl ")}
    found = releases.digest(before, result.files)
    assert found in reviewed, "this checkout is none of the releases whose diffs were reviewed"
    assert sorted(result.changed) == reviewed[found]
    for path in result.changed:
        compile(result.files[path], path, "exec", dont_inherit=True)
    assert not [f for f in result.after if f.path == "nemo_rl/distributed/model_utils.py"]
    assert ("nemo_rl/models/megatron/setup.py", "guard") in {(r.path, r.kind) for r in result.plan.remarks}
    assert not result.remarks("by-hand")
