"""Several files at once: names passed on by others, packages in odd places."""

from __future__ import annotations

from planning import migrate, planned

from mcore_unpatch.codemods.catalogue.nemo_rl import NEMO_RL
from mcore_unpatch.codemods.shims.exports import Exports
from mcore_unpatch.editing.edits import Options, Repository
from mcore_unpatch.findings.rules import Selection

FORK = "vendor/fork"
DEFINITION = b"""\
from megatron.core.models.gpt.gpt_model import GPTModel


def patch_postprocess(model: GPTModel):
    model._postprocess = _postprocess.__get__(model, GPTModel)


def _postprocess(self, hidden_states, **kwargs):
    mtp_loss = self.mtp(hidden_states)
    return mtp_loss
"""
UNSAFE = Options(unsafe_fixes=True, selection=Selection(("MCU",)))  # functions of no release: the rules are named


def tree(files: dict[str, bytes]) -> dict[str, bytes]:
    """A fork's package, with the files given by their paths in it."""
    packages = ("", "models/", "models/mcore/", "workers/")
    found = {f"{FORK}/{package}__init__.py": b"" for package in packages}
    found[f"{FORK}/models/mcore/mtp_patch.py"] = DEFINITION
    return found | {f"{FORK}/{name}.py": data for name, data in files.items()}


def test_relative_imports_of_every_depth() -> None:
    files = tree(
        {
            "models/mcore/engine": b"from .mtp_patch import patch_postprocess\n",
            "workers/engine": b"from ..models.mcore.mtp_patch import patch_postprocess as p\n",
        }
    )
    new = migrate(files, UNSAFE).files
    guard = b"    from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess"
    assert guard + b"\nexcept ImportError:\n    from .mtp_patch" in new[f"{FORK}/models/mcore/engine.py"]
    assert guard + b" as p\nexcept ImportError:\n    from ..models" in new[f"{FORK}/workers/engine.py"]


def test_names_passed_on_through_init_and_registry() -> None:
    files = tree(
        {
            "models/mcore/registry": b"from .mtp_patch import patch_postprocess\n\n__all__ = ['patch_postprocess']\n",
            "models/mcore/__init__": b"from .registry import patch_postprocess\n",
            "workers/engine": b"def run(m):\n    from fork.models.mcore import patch_postprocess, other\n\n"
            b"    patch_postprocess(m)\n",
        }
    )
    new = migrate(files, UNSAFE).files
    changed = {path for path in files if new[path] != files[path]}
    assert changed == {f"{FORK}/models/mcore/mtp_patch.py"}  # three take it: the function itself hands over
    del files[f"{FORK}/models/mcore/__init__.py"]
    files[f"{FORK}/workers/engine.py"] = files[f"{FORK}/workers/engine.py"].replace(
        b"mcore import", b"mcore.registry import"
    )
    new = migrate(files, UNSAFE).files
    assert (
        b"from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess\n"
        in new[f"{FORK}/models/mcore/registry.py"]
    )
    engine = new[f"{FORK}/workers/engine.py"]
    assert b"    from fork.models.mcore.registry import other\n    try:" in engine
    assert b"        from fork.models.mcore.registry import patch_postprocess\n" in engine


def test_without_unsafe_fixes_a_fork_of_its_own_stays() -> None:
    files = tree({"models/mcore/engine": b"from .mtp_patch import patch_postprocess\n"})
    result = migrate(files)
    assert result.files == files
    assert {(r.kind, r.path) for r in result.plan.remarks} == {
        ("differs", f"{FORK}/models/mcore/mtp_patch.py"),
        ("left", f"{FORK}/models/mcore/mtp_patch.py"),
        ("left", f"{FORK}/models/mcore/engine.py"),
    }


def test_rules_that_are_not_wanted_change_nothing() -> None:
    files = tree({"models/mcore/engine": b"from .mtp_patch import patch_postprocess\n"})
    from mcore_unpatch.findings.rules import Selection

    made, _ = planned(files, Options(unsafe_fixes=True, selection=Selection(("MCU",), ignore=("MCU201", "MCU702"))))
    assert not made.edits


def test_a_file_that_cannot_be_read_is_an_error_not_the_end() -> None:
    files = tree(
        {
            "models/mcore/broken": b"from .mtp_patch import patch_postprocess\ndef broken(:\n",
            "models/mcore/engine": b"from .mtp_patch import patch_postprocess\n",
        }
    )
    made, _ = planned(files, UNSAFE)
    assert [error.path for error in made.errors] == [f"{FORK}/models/mcore/broken.py"]
    assert f"{FORK}/models/mcore/engine.py" in {edit.path for edit in made.edits}


MODEL_UTILS = b"""\
import torch
from megatron.core.models.gpt import GPTModel


def patch_gpt_model_forward_for_linear_ce_fusion(*, chunk_size: int) -> None:
    GPTModel.forward = _gpt_forward_with_linear_ce_fusion


def _gpt_forward_with_linear_ce_fusion(self, input_ids, return_logprobs_for_linear_ce_fusion=False):
    return self.decoder(input_ids)


def topk(logits: torch.Tensor):
    return logits
"""


def test_of_the_files_that_name_the_module_those_are_kept_that_have_something_of_it() -> None:
    """The first by way of the second; many projects have a module of that name."""
    files = {
        "a.py": b"from hub import model_utils as m\n",
        "hub.py": b"from nemo_rl.distributed import model_utils\n",
        "nemo_rl/distributed/model_utils.py": MODEL_UTILS,
        "other.py": b"from another import model_utils\n\nmodel_utils.load()\n",
        "text.py": b'replaced = mock.patch("nemo_rl.distributed.model_utils.topk")\n',
    }
    there = {*files, "nemo_rl", "nemo_rl/distributed"}
    exports = Exports(NEMO_RL, Repository([*files], there.__contains__, files.__getitem__))
    assert sorted(exports.imports) == ["a.py", "hub.py", "nemo_rl/distributed/model_utils.py", "text.py"]
