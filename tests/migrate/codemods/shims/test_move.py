"""A repository is read as a whole: what others reach stays, what belongs together moves together, tests are told."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import releases
from planning import Result, after, migrate, planned

from mcore_unpatch.editing.edits import Options
from mcore_unpatch.findings.rules import Selection

pytestmark = pytest.mark.slow

UNSAFE = Options(unsafe_fixes=True)
BY_NAME = Options(unsafe_fixes=True, selection=Selection(("MCU",)))
MTP = "verl/models/mcore/mtp_patch.py"
FUSED = "verl/models/mcore/model_forward_fused.py"
ENGINE = "verl/workers/engine/megatron/transformer_impl.py"
REGISTRY = "verl/models/mcore/registry.py"
UTILS = "verl/utils/megatron_utils.py"
UTIL = "verl/models/mcore/util.py"
CALLERS = (FUSED, REGISTRY, UTILS, ENGINE, UTIL)
MODULE = "verl.models.mcore.mtp_patch"


def verl(*parts: str, **others: str) -> dict[str, bytes]:
    """veRL 0.8.0's file of patches for MTP, other files of it, and others beside them."""
    files = {path: releases.verl("0.8.0")[path] for path in (MTP, "verl/models/mcore/__init__.py", *parts)}
    files |= {"verl/__init__.py": b"", "verl/models/__init__.py": b""}
    return files | {f"{name.replace('__', '/')}.py": text.encode() for name, text in others.items()}


def left(result: Result, path: str) -> str:
    """What is said of patches that stay in a file."""
    return "\n".join(remark.text for remark in result.plan.remarks if (remark.path, remark.kind) == (path, "left"))


def by_hand(result: Result) -> list[tuple[str, int, str]]:
    return [(one.path, one.line, one.text) for one in result.plan.remarks if one.kind == "by-hand"]


# Ways to reach `_patched_checkpointed_forward`, which nobody but the patch calls: it stays for each of them.
NAME = "_patched_checkpointed_forward"
REACHED = {
    "from import": f"from {MODULE} import {NAME}\n",
    "attribute": f"import {MODULE} as m\n\nm.{NAME}\n",
    "dotted": f"import {MODULE}\n\n{MODULE}.{NAME}\n",
    "package": f"import verl.models.mcore as mcore\n\nmcore.mtp_patch.{NAME}\n",
    "setattr": f'import {MODULE} as m\n\nsetattr(m, "{NAME}", None)\n',
    "setattr dotted": f'import {MODULE}\n\nsetattr({MODULE}, "{NAME}", None)\n',
    "getattr": f'from verl.models.mcore import mtp_patch\n\ngetattr(mtp_patch, "{NAME}")\n',
    "hasattr": f'from verl.models.mcore import mtp_patch\n\nassert hasattr(mtp_patch, "{NAME}")\n',
    "delattr": f'from verl.models.mcore import mtp_patch\n\ndelattr(mtp_patch, "{NAME}")\n',
    "monkeypatch": f'import {MODULE} as m\n\ndef test(monkeypatch):\n    monkeypatch.setattr(m, "{NAME}", None)\n',
    "monkeypatch by text": f'def test(monkeypatch):\n    monkeypatch.setattr("{MODULE}.{NAME}", None)\n',
    "monkeypatch by keyword": f'import {MODULE} as m\n\ndef test(mp):\n    mp.setattr(target=m, name="{NAME}")\n',
    "mock.patch": f'from unittest import mock\n\nwith mock.patch("{MODULE}.{NAME}"):\n    pass\n',
    "mock.patch as decorator": f'from unittest.mock import patch\n\n@patch("{MODULE}.{NAME}")\ndef test(_): ...\n',
    "mock.patch.object": f'import {MODULE} as m\nfrom unittest import mock\n\nmock.patch.object(m, "{NAME}").start()\n',
    "mock.patch.multiple": f"import {MODULE} as m\nfrom unittest import mock\n\nmock.patch.multiple(m, {NAME}=1)\n",
    "import_module": f'from importlib import import_module\n\nm = import_module("{MODULE}")\nm.{NAME}\n',
    "entry point": f'TARGET = "{MODULE}:{NAME}"\n',
    "loop": f'import {MODULE} as m\n\nfor name in ["{NAME}"]:\n    setattr(m, name, None)\n',
    "handed on": f"import {MODULE} as m\n\ndef replace(module):\n    module.{NAME} = None\n\nreplace(m)\n",
}


@pytest.mark.parametrize("text", REACHED.values(), ids=REACHED)
def test_a_name_that_is_reached_stays(text: str) -> None:
    package = {f"verl/{folder}__init__.py": b"" for folder in ("", "models/", "models/mcore/")}
    files = {MTP: releases.verl("0.8.0")[MTP], "tests/test_ours.py": text.encode(), **package}
    if text == REACHED["from import"]:  # whether who reaches it may be edited, and a second run, are asked once
        assert f"def {NAME}".encode() in migrate(files, editable=[MTP]).files[MTP]
        assert f"def {NAME}".encode() in migrate(files, editable=list(files)).files[MTP]
    plan, _ = planned(files, Options(), [MTP])
    assert {edit.path for edit in plan.edits} == {MTP}
    assert f"def {NAME}".encode() in after(files, plan)[MTP]


def test_a_name_that_nobody_reaches_goes() -> None:
    assert f"def {NAME}".encode() not in migrate(verl()).files[MTP]


def test_an_import_that_a_test_replaces_stays_too() -> None:
    test = f'import {MODULE} as m\n\ndef test(monkeypatch):\n    monkeypatch.setattr(m, "roll_tensor", None)\n'
    assert b"roll_tensor" not in migrate(verl()).files[MTP]
    new = migrate(verl(tests__test_ours=test)).files[MTP]
    assert new.count(b"roll_tensor") == 2
    assert b'    "roll_tensor",\n' in new, "in `__all__`: no linter takes it for unused"


@pytest.mark.parametrize("text", [
    f"import {MODULE} as m\n\nm.roll_tensor = None\n",
    f'import {MODULE} as m\n\nsetattr(m, "roll_tensor", None)\n',
    f'from unittest.mock import patch\n\npatch("{MODULE}.roll_tensor", None).start()\n',
])  # fmt: skip
def test_what_code_replaces_inside_holds_the_patches_that_use_it(text: str) -> None:
    """The shim would not see the replacement, and nobody would notice."""
    result = migrate(verl(tools__plugin=text))
    assert b"def patch_postprocess" in result.files[MTP]
    assert b"def unpatch_postprocess" in result.files[MTP]
    assert b"def patch_mtp_layer_checkpointed_forward" not in result.files[MTP]
    assert "tools/plugin.py:3 replaces `roll_tensor` here" in left(result, MTP)
    assert "--select MCU1,MCU7 --unsafe-fixes` replaces it all the same" in left(result, MTP)
    assert b"def patch_postprocess" not in migrate(verl(tools__plugin=text), BY_NAME).files[MTP]


def test_what_a_test_replaces_inside_is_told_with_file_and_line() -> None:
    test = (
        f"import {MODULE} as m\n\n\ndef test_loss(monkeypatch):\n"
        '    monkeypatch.setattr(m, "roll_tensor", None)\n    m._megatron_gptmodel_postprocess()\n'
    )
    result = migrate(verl(tests__test_ours=test))
    assert b"def patch_postprocess" not in result.files[MTP]
    assert b"def _megatron_gptmodel_postprocess" in result.files[MTP]
    [(path, line, said)] = [one for one in by_hand(result) if one[0] != MTP]  # where a text still speaks of the patch
    assert (path, line) == ("tests/test_ours.py", 5)
    assert "`roll_tensor` (line 5), `_megatron_gptmodel_postprocess` (line 6) of verl/models/mcore/mtp_patch.py" in said


def test_with_consent_what_only_a_test_knows_goes_and_the_test_is_told() -> None:
    plugin = f"import {MODULE} as m\n\nm.roll_tensor = None\n"  # nobody's consent is asked without it
    test = f"import {MODULE} as m\n\n\ndef test_loss():\n    m._megatron_gptmodel_postprocess(m.MTPLossAutoScaler)\n"
    result = migrate(verl(tools__plugin=plugin, tests__test_ours=test), BY_NAME)
    assert b"def _megatron_gptmodel_postprocess" not in result.files[MTP]
    assert b"MTPLossAutoScaler" not in result.files[MTP], "nor what it imports: `__all__` names what others need"
    said = {path: text for path, _, text in by_hand(result)}
    assert said["tests/test_ours.py"].endswith("adapt it to the shim, or delete it")
    assert "`MTPLossAutoScaler` (line 5)" in said["tests/test_ours.py"]


def test_a_test_of_what_stays_is_not_told() -> None:
    """`preprocess_packed_seqs` stands in a file that nothing is taken from."""
    test = "from verl.models.mcore.util import preprocess_packed_seqs\n"
    assert not by_hand(migrate(verl(UTIL, tests__test_ours=test)))


def test_a_mock_of_a_name_with_a_shim_is_told() -> None:
    test = f'import {MODULE} as m\n\n\ndef test(monkeypatch):\n    monkeypatch.setattr(m, "patch_postprocess", None)\n'
    [(path, line, said)] = by_hand(migrate(verl(tests__test_ours=test)))
    assert (path, line) == ("tests/test_ours.py", 5)
    assert said.startswith("this test knows `patch_postprocess` (line 5) of verl/models/mcore/mtp_patch.py")


# --- a path limits what is edited ----------------------------------------------------------------------------------


def below(files: Iterable[str], *folders: str) -> list[str]:
    return [path for path in files if path.startswith(folders)]


def test_outside_the_path_nothing_is_edited_and_old_imports_still_work() -> None:
    caller = f"from {MODULE} import patch_postprocess, _get_patching_model\n"
    files = verl(recipe__main=caller)
    result = migrate(files, editable=below(files, "verl/"))
    assert result.files["recipe/main.py"] == caller.encode()
    assert b"def patch_postprocess" not in result.files[MTP]
    assert b"    patch_postprocess,\n" in result.files[MTP]
    assert b"def _get_patching_model" in result.files[MTP]


def test_callers_alone_do_not_move_while_others_keep_the_patch() -> None:
    """One file would install the shim, the other would call a forward that only the patch understands."""
    files = verl(*CALLERS)
    only = below(files, "verl/workers/")
    result = migrate(files, UNSAFE, only)
    assert result.files == files
    assert f"{REGISTRY}:26 uses it too and is outside the given paths" in left(result, ENGINE)


def test_callers_move_where_all_of_them_are_named() -> None:
    files = verl(*CALLERS)
    named = [path for path in files if not path.endswith("/mtp_patch.py")]
    result = migrate(files, editable=named)
    assert result.files[MTP] == files[MTP]
    assert b"from mcore_unpatch.compat.verl.mtp_patch import" in result.files[UTILS]


def test_a_replacement_outside_the_path_is_final() -> None:
    files = verl(tests__test_ours=f'from unittest.mock import patch\n\npatch("{MODULE}.roll_tensor", None)\n')
    result = migrate(files, UNSAFE, below(files, "verl/"))
    assert b"def patch_postprocess" in result.files[MTP]
    assert "tests/test_ours.py:3 replaces `roll_tensor` here" in left(result, MTP)
    assert "--unsafe-fixes" not in left(result, MTP)


def test_an_installed_downstream_moves_in_all_files_or_in_none() -> None:
    files = {
        "a.py": b"from verl.models.mcore.model_forward_fused import patch_fused_forward\n",
        "b.py": b"from verl.models.mcore.model_forward_fused import fused_forward_model_gen\n",
    }
    assert migrate(files, UNSAFE, ["a.py"]).files == files
    assert "b.py:1 uses it too" in left(migrate(files, UNSAFE, ["a.py"]), "a.py")
    assert migrate(files).changed == {"a.py", "b.py"}


def test_many_places_outside_are_counted_and_not_all_listed() -> None:
    text = b"from verl.models.mcore.model_forward_fused import patch_fused_forward\n"
    files = {f"{name}.py": text for name in "abcdefgh"}
    said = left(migrate(files, editable=["a.py"]), "a.py")
    assert "b.py:1 uses it too and is outside the given paths" in said
    assert "; and 4 more places" in said
    assert "h.py" not in said


def test_nemo_rls_flag_outside_the_path_keeps_the_patch() -> None:
    files = {
        "nemo_rl/setup.py": b"from nemo_rl.distributed.model_utils import (\n"
        b"    patch_gpt_model_forward_for_linear_ce_fusion,\n)\n",
        "tests/test_train.py": b"def run(model, ids):\n"
        b"    kwargs = {}\n"
        b"    kwargs['return_logprobs_for_linear_ce_fusion'] = True\n"
        b"    return model(ids, **kwargs)\n",
    }
    result = migrate(files, UNSAFE, ["nemo_rl/setup.py"])
    assert result.files == files
    assert "tests/test_train.py:3 uses `return_logprobs_for_linear_ce_fusion`" in left(result, "nemo_rl/setup.py")
    assert migrate(files).changed == set(files)


# --- what belongs together -----------------------------------------------------------------------------------------


def test_a_changed_patch_keeps_its_undoing() -> None:
    files = verl()
    old = b"mtp_loss_scale = self.config.mtp_loss_scaling_factor / self.config.mtp_num_layers"
    assert old in files[MTP]
    files[MTP] = files[MTP].replace(old, old + b" * 2")
    result = migrate(files)
    assert b"def patch_postprocess" in result.files[MTP]
    assert b"def unpatch_postprocess" in result.files[MTP]
    assert (
        "`patch_postprocess` and `unpatch_postprocess` are left: `_megatron_gptmodel_postprocess` was changed"
        in left(result, MTP)
    )


# --- what stands on the hook ---------------------------------------------------------------------------------------

STANDING = """\
import inspect


def patch_fused_forward(model):
    if "output_processor" in inspect.signature(model.forward).parameters:
        return
    model.forward = _old_forward.__get__(model, type(model))


def fused_forward_model_gen(vision_model=False):
    def run(model, input_ids, labels, temperature):
        return model(input_ids=input_ids, labels=labels, {given})

    return run


def _old_forward(self, input_ids, labels=None, temperature=1.0):
    return self.decoder(input_ids)
"""


@pytest.mark.parametrize(
    "given", ["output_processor=ours", '**{"output_processor": ours}', "**dict(output_processor=ours)"]
)
def test_a_fork_that_passes_the_hook_itself_is_left_alone(given: str) -> None:
    path = "ours/models/mcore/model_forward_fused.py"
    caller = b"from ours.models.mcore.model_forward_fused import patch_fused_forward\n"
    files = {path: STANDING.format(given=given).encode(), "ours/engine.py": caller}
    result = migrate(files)
    assert result.files == files
    assert "`output_processor` already" in left(result, path)
    assert not result.remarks("differs")
    assert not left(result, "ours/engine.py")
    assert not migrate(files, UNSAFE).changed  # an offer, and no patch: it is taken where the rule is named
    assert migrate(files, Options(unsafe_fixes=True, selection=Selection(("MCU701",)))).changed == set(files)


@pytest.mark.parametrize("given", ["output_processor=None", "output_processor=output_processor", "temperature=1.0"])
def test_passing_nothing_or_what_was_given_is_no_standing(given: str) -> None:
    path = "ours/models/mcore/model_forward_fused.py"
    result = migrate({path: STANDING.format(given=given).encode()})
    assert "`output_processor` already" not in left(result, path)


def test_a_fallback_for_older_releases_is_told_as_one_and_not_repaired() -> None:
    text = (
        "import inspect\n\nfrom megatron.core.models.gpt.gpt_model import GPTModel\n\n\n"
        "def _takes_hook(model):\n"
        '    return "output_processor" in inspect.signature(model.forward).parameters\n\n\n'
        "def prepare(model: GPTModel):\n    if not _takes_hook(model):\n"
        "        model.forward = old_forward.__get__(model, GPTModel)\n\n\n"
        "def old_forward(self, input_ids, position_ids, attention_mask, decoder_input=None, labels=None):\n"
        "    hidden_states = self.decoder(input_ids)\n    return linear_cross_entropy(hidden_states, labels)\n"
    )
    result = migrate({"ours/prepare.py": text.encode()}, UNSAFE)
    assert not result.changed
    [remark] = result.plan.remarks
    assert (remark.line, remark.kind) == (12, "left")
    assert "which Megatron runs here is not known" in remark.text
    named = Options(unsafe_fixes=True, pinned=lambda _: ((0, 19),))
    [remark] = migrate({"ours/prepare.py": text.encode()}, named).plan.remarks
    assert "delete this branch" in remark.text
    assert "unless a model of yours overrides the method without these parameters" in remark.text
    plain = text.replace("if not _takes_hook(model):", "if model.training:")
    assert not [one for one in migrate({"ours/prepare.py": plain.encode()}).plan.remarks if one.kind == "left"]


def test_parameters_are_not_spoken_of_where_the_guard_asks_for_the_method() -> None:
    text = (
        "import inspect\n\nfrom megatron.core.transformer.transformer_block import TransformerBlock\n\n\n"
        "def names(block):\n    return inspect.signature(block.forward).parameters\n\n\n"
        "def theirs():\n    return getattr(TransformerBlock, '_checkpointed_forward', None)\n\n\n"
        "def prepare(block: TransformerBlock):\n    if theirs() is not None:\n"
        "        block._checkpointed_forward = lambda *args: 1\n    return block\n"
    )
    named = Options(unsafe_fixes=True, pinned=lambda _: ((0, 19),))
    [remark] = migrate({"ours/prepare.py": text.encode()}, named).plan.remarks
    assert "delete this branch" in remark.text
    assert "unless a model of yours overrides" not in remark.text
