"""Whole trees of real releases: who installs a patch of veRL's has the shim's, and the file of the patch stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import releases
from planning import Result, migrate

from mcore_unpatch.codemods.catalogue.verl import VERL
from mcore_unpatch.editing.edits import Options
from mcore_unpatch.editing.refusals import Left, Refusal
from mcore_unpatch.findings.rules import Selection

pytestmark = pytest.mark.slow
FUSED, MTP = "verl/models/mcore/model_forward_fused.py", "verl/models/mcore/mtp_patch.py"
REGISTRY, UTILS = "verl/models/mcore/registry.py", "verl/utils/megatron_utils.py"
ENGINE = "verl/workers/engine/megatron/transformer_impl.py"
UNSAFE = Options(unsafe_fixes=True)
# The files that have the shims' names now; the fused forward of 0.9 stands on the hook.
USERS = {
    "0.5.0": {REGISTRY, "verl/workers/actor/megatron_actor.py"},
    "0.6.1": {REGISTRY, "verl/workers/actor/megatron_actor.py"},
    "0.7.1": {REGISTRY, "verl/workers/actor/megatron_actor.py", ENGINE},
    "0.8.0": {REGISTRY, UTILS, ENGINE},
    "0.9.1": {UTILS, ENGINE},
}


@pytest.mark.parametrize("release", releases.OFTEN)
def test_who_installs_verls_patches_has_the_shims(release: str, migrated: Callable[[str], Result]) -> None:
    before, result = releases.verl(release), migrated(release)
    assert {path for path, data in result.files.items() if b"mcore_unpatch.compat.verl" in data} == USERS[release]
    for path in result.changed:
        compile(result.files[path], path, "exec", dont_inherit=True)
    deleted = {edit.path for edit in result.plan.edits if edit.title.startswith("deletes")}
    for shim in VERL.shims:
        path = f"verl/{shim.file}"
        assert path in deleted | USERS[release] or result.files.get(path) == before.get(path)
    assert Refusal.CHANGED not in kinds(result)
    assert result.plan.requirement is None  # every Megatron still runs
    assert result.plan.dependency == "mcore-unpatch[compat]"


def test_a_cut_at_every_depth_takes_consent() -> None:
    """veRL 0.7 detaches the hidden states before each MTP layer, later releases and the shim before the first alone."""
    part = releases.patched_part("0.7.1")
    assert _SHIM not in migrate(part).files[UTILS]
    result = migrate(part, UNSAFE)
    assert _SHIM in result.files[UTILS]
    notes = {note for edit in result.plan.edits if edit.path == UTILS for note in edit.notes}
    assert any("every_depth=True" in note for note in notes)


# --- a fork is known by its functions --------------------------------------------------------------------------------

LOSS = b"mtp_loss_scale = self.config.mtp_loss_scaling_factor / self.config.mtp_num_layers"
_SHIM = b"from mcore_unpatch.compat.verl.mtp_patch import"


def forked(old: bytes, new: bytes, path: str = MTP) -> dict[str, bytes]:
    """Some files of veRL, with a statement changed as a fork would."""
    files = releases.patched_part("0.8.0")
    assert old in files[path]
    return files | {path: files[path].replace(old, new)}


def kinds(result: Result) -> set[Refusal]:
    """Why places are left."""
    return {left.kind for left in result.plan.left.values()}


def test_a_changed_body_is_left() -> None:
    new = b"mtp_loss_scale = 0.5 * self.config.mtp_loss_scaling_factor\n                our_log(mtp_loss_scale)"
    result = migrate(forked(LOSS, new))
    left = {finding.path: left for finding, left in result.plan.left.items() if left.kind == Refusal.CHANGED}
    assert left == dict.fromkeys((MTP, UTILS, ENGINE), Left(Refusal.CHANGED, "`_megatron_gptmodel_postprocess`"))
    assert _SHIM not in result.files[UTILS], "the shim would meet a patched model"
    asked = migrate(forked(LOSS, new), Options(unsafe_fixes=True, selection=Selection(("MCU2", "MCU7"))))
    assert _SHIM in asked.files[UTILS]
    assert {edit.level for edit in asked.plan.edits if edit.path == UTILS} == {"behaviour"}


def test_comments_docstrings_and_annotations_change_no_body() -> None:
    files = forked(b"from typing import Callable", b"from collections.abc import Callable")
    told = b'def patch_postprocess(model) -> None:\n    """Ours."""\n    # ours'
    files[MTP] = files[MTP].replace(b"def patch_postprocess(model: torch.nn.Module):", told)
    assert b"# ours" in files[MTP]
    assert _SHIM in migrate(files).files[UTILS]


_UTIL = "verl/models/mcore/util.py"
_KERNEL = b"from verl.utils.kernel.linear_cross_entropy import"


@pytest.mark.parametrize(("path", "old", "new", "told"), [
    (FUSED, _KERNEL, b"from verl.our_kernel import", "linear_cross_entropy"),
    (_UTIL, b"def preprocess_packed_seqs(\n", b"def preprocess_packed_seqs(\n    *,\n", "preprocess_packed_seqs"),
    (_UTIL, b"align_size * 128", b"align_size * 64", "_compute_fp8_thd_align_size"),
])  # fmt: skip
def test_what_a_shim_has_its_own_of_is_compared_too(path: str, old: bytes, new: bytes, told: str) -> None:
    result = migrate(forked(old, new, path), UNSAFE)
    assert Left(Refusal.CHANGED, f"`{told}`") in result.plan.left.values()
    assert b"from mcore_unpatch.compat.verl" not in result.files[REGISTRY] + result.files[FUSED]
    if told == "preprocess_packed_seqs":
        [said] = {one.replacement for one in result.before if one.path == REGISTRY}
        assert said.startswith("port what was changed in `preprocess_packed_seqs` first")


def test_a_fork_under_another_name_and_in_another_place() -> None:
    files = {
        f"third_party/ours/{path.removeprefix('verl/')}": data.replace(b"verl.", b"ours.")
        for path, data in releases.patched_part("0.8.0").items()
    }
    result = migrate(files)
    moved = {path for path, data in result.files.items() if b"mcore_unpatch.compat.verl" in data}
    assert moved == {path.replace("verl/", "third_party/ours/", 1) for path in USERS["0.8.0"]}
    assert Refusal.CHANGED not in kinds(result)


def test_a_fork_that_names_itself_from_above() -> None:
    """A package inside another imports itself by `....verl`."""
    files = releases.patched_part("0.8.0", "model_forward_fused.py", "util.py")
    user = "verl/workers/actor/a.py"
    files[FUSED] = files[FUSED].replace(b"from verl.", b"from ....verl.")
    files[user] = b"from ....verl.models.mcore.model_forward_fused import patch_fused_forward\n"
    result = migrate(files)
    assert b"from mcore_unpatch.compat.verl.model_forward_fused import" in result.files[user]
    assert Refusal.CHANGED not in kinds(result)


def test_what_stands_on_the_hook_is_left_alone_and_an_offer_is_made(migrated: Callable[[str], Result]) -> None:
    before, result = releases.verl("0.9.1"), migrated("0.9.1")
    assert result.files[FUSED] == before[FUSED]
    assert result.files[REGISTRY] == before[REGISTRY]
    assert b"from verl.models.mcore.model_forward_fused import patch_fused_forward\n" in result.files[ENGINE]
    assert {left.kind for one, left in result.plan.left.items() if one.rule == "MCU701"} == {Refusal.ON_HOOK}
    part = releases.patched_part("0.9.1", "model_forward_fused.py", "util.py", "registry.py")
    assert migrate(part, UNSAFE).files[REGISTRY] == before[REGISTRY]
    asked = migrate(part, Options(unsafe_fixes=True, selection=Selection(("MCU1", "MCU7"))))
    assert asked.files[REGISTRY] != before[REGISTRY]
    assert {edit.level for edit in asked.plan.edits if edit.path == REGISTRY} == {"behaviour"}


def test_nemo_rl_goes_over_to_the_hook() -> None:
    before = releases.nemo_rl()
    result = migrate(before)
    assert {"nemo_rl/models/megatron/setup.py"} == result.changed
    for path in result.changed:
        compile(result.files[path], path, "exec", dont_inherit=True)
