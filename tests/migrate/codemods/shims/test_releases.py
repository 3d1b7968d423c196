"""Whole trees of real releases: who installs a patch of veRL's has the shim's, and the file of the patch stays."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import releases
from planning import Result, migrate

from mcore_unpatch.codemods.catalogue.verl import VERL
from mcore_unpatch.editing.edits import Options
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
    "0.7.1": {FUSED, "verl/workers/actor/megatron_actor.py"},  # three places use the fused forward: it hands over
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
    assert not result.remarks("differs")
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


def differing(result: Result) -> dict[str, str]:
    """The functions that differ from upstream's, by name, with the difference."""
    return {one.text.split("`")[1]: one.detail for one in result.plan.remarks if one.kind == "differs"}


def test_a_changed_body_is_left_and_shown() -> None:
    new = b"mtp_loss_scale = 0.5 * self.config.mtp_loss_scaling_factor\n                our_log(mtp_loss_scale)"
    result = migrate(forked(LOSS, new))
    [(name, detail)] = differing(result).items()
    assert name == "_megatron_gptmodel_postprocess"
    assert "+                our_log(mtp_loss_scale)\n" in detail
    assert "-(upstream lines " in detail
    assert {remark.path for remark in result.plan.remarks if remark.kind == "left"} == {MTP, UTILS, ENGINE}
    assert _SHIM not in result.files[UTILS], "the shim would meet a patched model"
    asked = migrate(forked(LOSS, new), Options(unsafe_fixes=True, selection=Selection(("MCU2", "MCU7"))))
    assert _SHIM in asked.files[UTILS]
    assert {edit.level for edit in asked.plan.edits if edit.path == UTILS} == {"behaviour"}


def test_a_body_with_parts_left_out_goes_with_consent() -> None:
    files = forked(b"", b"")
    files[MTP] = re.sub(rb" *" + re.escape(LOSS) + rb"\n", b"", files[MTP])
    assert _SHIM not in migrate(files).files[UTILS]
    assert _SHIM in migrate(files, UNSAFE).files[UTILS]
    files[MTP] = files[MTP].replace(b"def patch_postprocess", b"@ours\ndef patch_postprocess")
    assert _SHIM not in migrate(files, UNSAFE).files[UTILS]


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
    (FUSED, _KERNEL, b"from verl.utils.ops.kernel.linear_cross_entropy import", ""),  # only moved
    (_UTIL, b"def preprocess_packed_seqs(\n", b"def preprocess_packed_seqs(\n    *,\n", "preprocess_packed_seqs"),
    (_UTIL, b"align_size * 128", b"align_size * 64", "_compute_fp8_thd_align_size"),
])  # fmt: skip
def test_what_a_shim_has_its_own_of_is_compared_too(path: str, old: bytes, new: bytes, told: str) -> None:
    result = migrate(forked(old, new, path), UNSAFE)
    assert told in {*differing(result), ""}
    moved = b"from mcore_unpatch.compat.verl" in result.files[REGISTRY] + result.files[FUSED]
    assert moved == (not told)
    if told == "preprocess_packed_seqs":
        [said] = {one.replacement for one in result.before if one.path == REGISTRY}
        assert said.startswith("`preprocess_packed_seqs` here differs from verl's in ")


def test_a_fork_under_another_name_and_in_another_place() -> None:
    files = {
        f"third_party/ours/{path.removeprefix('verl/')}": data.replace(b"verl.", b"ours.")
        for path, data in releases.patched_part("0.8.0").items()
    }
    result = migrate(files)
    moved = {path for path, data in result.files.items() if b"mcore_unpatch.compat.verl" in data}
    assert moved == {path.replace("verl/", "third_party/ours/", 1) for path in USERS["0.8.0"]}
    assert not result.remarks("differs")


def test_a_fork_that_names_itself_from_above() -> None:
    """A package inside another imports itself by `....verl`."""
    files = releases.patched_part("0.8.0", "model_forward_fused.py", "util.py")
    user = "verl/workers/actor/a.py"
    files[FUSED] = files[FUSED].replace(b"from verl.", b"from ....verl.")
    files[user] = b"from ....verl.models.mcore.model_forward_fused import patch_fused_forward\n"
    result = migrate(files)
    assert b"from mcore_unpatch.compat.verl.model_forward_fused import" in result.files[user]
    assert not [remark for remark in result.plan.remarks if remark.kind in ("differs", "numerics")]


def test_what_stands_on_the_hook_is_left_alone_and_an_offer_is_made(migrated: Callable[[str], Result]) -> None:
    before, result = releases.verl("0.9.1"), migrated("0.9.1")
    assert result.files[FUSED] == before[FUSED]
    assert result.files[REGISTRY] == before[REGISTRY]
    assert b"from verl.models.mcore.model_forward_fused import patch_fused_forward\n" in result.files[ENGINE]
    stays = next(remark for remark in result.plan.remarks if remark.path == FUSED)
    assert stays.kind == "left"
    assert "it uses the hook already" in stays.text
    assert "--select MCU1,MCU7 --unsafe-fixes` puts the shim in its place" in stays.text
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
    assert ("nemo_rl/models/megatron/setup.py", "guard") in {(r.path, r.kind) for r in result.plan.remarks}
    assert not result.remarks("by-hand")
