"""A repository is read as a whole: what others reach stays, what belongs together moves together, tests are told."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import releases
from planning import Result, migrate

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


ENGINE_OF_OURS = f"from {MODULE} import patch_mtp_layer_checkpointed_forward, patch_postprocess\n"
MOVED = b"from mcore_unpatch.compat.verl.mtp_patch import"


def test_the_file_of_a_patch_stays_as_it_is_and_its_findings_are_answered() -> None:
    files = verl(ours__engine=ENGINE_OF_OURS)
    result = migrate(files)
    assert result.files[MTP] == files[MTP]
    assert MOVED in result.files["ours/engine.py"]
    assert result.changed == {"ours/engine.py"}
    assert {one.path for one in result.plan.removes} == {MTP, "ours/engine.py"}


def test_a_patch_that_nobody_asks_for_is_not_answered() -> None:
    files = verl()
    assert not migrate(files).plan.removes


# Ways to reach a patch that no edit of an import turns: what goes on with the patch as it is holds all of it.
REACHED = {
    "attribute": f"import {MODULE} as m\n\nm.patch_postprocess\n",
    "dotted": f"import {MODULE}\n\n{MODULE}.patch_postprocess\n",
    "package": "import verl.models.mcore as mcore\n\nmcore.mtp_patch.patch_postprocess\n",
    "getattr": 'from verl.models.mcore import mtp_patch\n\ngetattr(mtp_patch, "patch_postprocess")\n',
    "import_module": f'from importlib import import_module\n\nm = import_module("{MODULE}")\nm.patch_postprocess\n',
    "text": f'TARGET = "{MODULE}:patch_postprocess"\n',
    "star": f"from {MODULE} import *\n",
}


@pytest.mark.parametrize("text", REACHED.values(), ids=REACHED)
def test_what_reaches_a_patch_through_its_module_holds_it(text: str) -> None:
    result = migrate(verl(ours__engine=ENGINE_OF_OURS, ours__other=text), UNSAFE)
    assert result.files["ours/engine.py"] == ENGINE_OF_OURS.encode(), "the shim would meet a patched model"
    assert "ours/other.py:" in left(result, MTP)
    assert "reaches it through its module" in left(result, MTP)


def test_tests_go_on_with_the_patch() -> None:
    test = f"from {MODULE} import patch_postprocess\n\n\ndef test():\n    patch_postprocess(None)\n"
    result = migrate(verl(ours__engine=ENGINE_OF_OURS, tests__test_ours=test))
    assert result.changed == {"ours/engine.py"}
    assert not [one for one in result.before if one.path == "tests/test_ours.py"]


@pytest.mark.parametrize("text", [
    f"import {MODULE} as m\n\nm.roll_tensor = None\n",
    f'import {MODULE} as m\n\nsetattr(m, "roll_tensor", None)\n',
    f'from unittest.mock import patch\n\npatch("{MODULE}.roll_tensor", None).start()\n',
])  # fmt: skip
def test_what_code_replaces_inside_holds_the_patches_that_use_it(text: str) -> None:
    """The shim would not see the replacement, and nobody would notice."""
    files = verl(ours__engine=ENGINE_OF_OURS, tools__plugin=text)
    result = migrate(files)
    assert result.files["ours/engine.py"] == ENGINE_OF_OURS.encode()
    assert "tools/plugin.py:3 replaces `roll_tensor` here" in left(result, MTP)
    assert "--select MCU1,MCU7 --unsafe-fixes` puts the shim in its place all the same" in left(result, MTP)
    assert MOVED in migrate(files, BY_NAME).files["ours/engine.py"]


# --- a path limits what is edited ----------------------------------------------------------------------------------


def below(files: Iterable[str], *folders: str) -> list[str]:
    return [path for path in files if path.startswith(folders)]


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
    plugin = f'from unittest.mock import patch\n\npatch("{MODULE}.roll_tensor", None)\n'
    files = verl(verl__ours=ENGINE_OF_OURS, tools__plugin=plugin)
    result = migrate(files, UNSAFE, below(files, "verl/"))
    assert result.files["verl/ours.py"] == ENGINE_OF_OURS.encode()
    assert "tools/plugin.py:3 replaces `roll_tensor` here" in left(result, MTP)
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


# --- what belongs together -----------------------------------------------------------------------------------------


def test_a_changed_patch_keeps_its_undoing() -> None:
    files = verl(ours__engine=f"from {MODULE} import patch_postprocess\n")
    old = b"mtp_loss_scale = self.config.mtp_loss_scaling_factor / self.config.mtp_num_layers"
    assert old in files[MTP]
    files[MTP] = files[MTP].replace(old, old + b" * 2")
    result = migrate(files)
    assert result.files == files
    assert "`patch_postprocess` is left: `_megatron_gptmodel_postprocess` was changed" in left(result, MTP)


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
    assert "it uses the hook already" in left(result, path)
    assert not result.remarks("differs")
    assert not left(result, "ours/engine.py")
    assert not migrate(files, UNSAFE).changed  # an offer, and no patch: it is taken where the rule is named
    assert migrate(files, Options(unsafe_fixes=True, selection=Selection(("MCU701",)))).changed == {"ours/engine.py"}


@pytest.mark.parametrize("given", ["output_processor=None", "output_processor=output_processor", "temperature=1.0"])
def test_passing_nothing_or_what_was_given_is_no_standing(given: str) -> None:
    path = "ours/models/mcore/model_forward_fused.py"
    result = migrate({path: STANDING.format(given=given).encode()})
    assert "it uses the hook already" not in left(result, path)


def test_parameters_are_not_spoken_of_where_the_guard_asks_for_the_method() -> None:
    text = (
        "import inspect\n\nfrom megatron.core.transformer.transformer_block import TransformerBlock\n\n\n"
        "def names(block):\n    return inspect.signature(block.forward).parameters\n\n\n"
        "def theirs():\n    print(1)\n    return getattr(TransformerBlock, '_checkpointed_forward', None)\n\n\n"
        "def prepare(block: TransformerBlock):\n    if theirs() is not None:\n"
        "        block._checkpointed_forward = lambda *args: 1\n    return block\n"
    )
    named = Options(unsafe_fixes=True, pinned=lambda _: ((0, 19),))
    [remark] = migrate({"ours/prepare.py": text.encode()}, named).plan.remarks
    assert "delete this branch" in remark.text
    assert "unless a model of yours overrides" not in remark.text
