"""Patches whose names come from loops, tables and mocks, and names that are new: none of them is harmless unseen."""

from pathlib import Path

import pytest
from checking import Source, found_in, releases, write_files
from command import unpatch

from mcore_unpatch import pins
from mcore_unpatch.judge.statement import CHANGES, RAISES
from mcore_unpatch.megatron import known
from mcore_unpatch.survey.survey import ScanOptions
from mcore_unpatch.upgrade.run import UpgradeReport, upgrade

LOOP = """
    import functools
    from megatron.core.transformer.mlp import MLP
    from megatron.core.transformer.transformer_block import TransformerBlock

    TABLE = ((MLP, ("forward",)), (TransformerBlock, ("forward", "_checkpointed_forward")))

    def logged(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            return fn(*args, **kwargs)
        return inner

    for cls, names in TABLE:
        for name in names:
            setattr(cls, name, logged(getattr(cls, name)))
"""


def report(folder: Path, source: Source, old: str = "0.16.1", new: str = "0.19.2") -> UpgradeReport:
    write_files(folder, source)
    return upgrade([folder], ScanOptions(jobs=1), *releases(old, new))


def test_a_default_of_getattr_does_not_raise(tmp_path: Path) -> None:
    said = report(tmp_path, LOOP.replace("getattr(cls, name)", "getattr(cls, name, None)")).fates
    assert "breaks" not in [fate.urgency for fate in said]


def test_names_that_are_not_evident_are_not_called_harmless(tmp_path: Path) -> None:
    (fate,) = report(tmp_path, """
        from megatron.core.transformer.mlp import MLP

        def install(names, fn):
            for name in names():
                setattr(MLP, name, fn)
    """).fates  # fmt: skip
    assert fate.urgency == "different"
    assert fate.reasons == ("which names of `MLP` it sets is not evident, so nothing is said of them",)


def test_a_name_that_may_have_been_in_what_the_wheel_lacks_is_not_said_to_be_new_for_certain(tmp_path: Path) -> None:
    source = "import megatron.core.utils as utils\nutils.get_batch_on_this_tp_rank = lambda *args, **more: None\n"
    (fate,) = report(tmp_path, source).fates
    assert "0.16.1 has none (megatron.training was not read), 0.19.2 has one" in " ".join(fate.reasons)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("_scale_logits(self, logits)", CHANGES),
        ("_scale_logits(self, logits, temperature)", RAISES),
        ("_rescale_logits(self, logits)", ""),
    ],
)
def test_a_method_of_a_subclass_that_the_base_has_now_too(tmp_path: Path, method: str, kind: str) -> None:
    made = report(tmp_path, f"""
        from megatron.core.models.gpt import GPTModel

        class OurModel(GPTModel):
            def {method}:
                return logits
    """).uses.affected  # fmt: skip
    assert [use.kind for use in made] == ([kind] if kind else [])
    assert all("overrides `GPTModel._scale_logits`, which is new" in use.text for use in made)


@pytest.mark.parametrize(("sign", "cut"), [(".", 'rsplit(".", 1)'), (":", 'split(":")')])
def test_a_table_of_names_under_any_name_is_a_patch(sign: str, cut: str) -> None:
    (finding,) = found_in(f"""
        import importlib

        def quiet(original):
            return original

        ENTRIES = {{"megatron.core.utils{sign}get_model_config": quiet}}

        def install():
            for entry, make in ENTRIES.items():
                module, name = entry.{cut}
                owner = importlib.import_module(module)
                setattr(owner, name, make(getattr(owner, name)))
    """)
    assert finding.target == "megatron.core.utils.get_model_config"


MOCKED = """
    from unittest import mock
    from megatron.core.transformer.moe import moe_utils

    def quiet():
        return mock.patch.object(moe_utils, "_MOE_LAYER_WISE_LOGGING_TRACKER", {})

    def quieter():
        return mock.patch("megatron.core.transformer.moe.router.save_to_aux_losses_tracker")
"""


def test_a_mock_of_what_is_gone_raises_unless_it_may_create_it(tmp_path: Path) -> None:
    made = report(tmp_path, MOCKED)
    assert [use.exception for use in made.uses.affected] == ["AttributeError"]
    assert [fate.urgency for fate in made.fates] == ["breaks"]
    made = report(
        tmp_path, MOCKED.replace(", {})", ", {}, create=True)").replace('tracker")', 'tracker", create=True)')
    )
    assert made.uses.affected == []
    assert [fate.urgency for fate in made.fates] == ["different"]


def test_what_has_no_statements_is_like_nothing() -> None:
    name = "megatron.core.optimizer.optimizer.MegatronOptimizer.get_main_grads_for_grad_norm"
    made = pins.pin(name, [known.model("0.16.1")])
    assert made is not None
    assert "sharded_state_dict" not in (pins.difference(made, known.model("0.19.2")) or "")


BROKEN = """
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

    def report():
        def inner():
            MTPLossLoggingHelper.reduce_loss_in_tracker()
        return inner
"""


@pytest.mark.parametrize(("more", "said"), [("", True), ("\n    made = report()\n", False)])
def test_code_that_nothing_here_calls_is_said_to_be_such(tmp_path: Path, more: str, said: bool) -> None:
    write_files(tmp_path, BROKEN + more)
    done = unpatch("upgrade", "--from", "0.18.2", "--to", "0.19.2", cwd=tmp_path)
    assert "AttributeError when `inner` is called" in done.out
    assert ("; nothing here calls `report`" in " ".join(done.out.split())) is said
