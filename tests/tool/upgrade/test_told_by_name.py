"""Patches whose names come from loops, tables and mocks, and names that are new: none of them is harmless unseen."""

from pathlib import Path

import pytest
from checking import Source, found_in, releases, write_files
from command import unpatch
from repository import Repository

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


def test_each_name_of_a_nested_loop_is_judged_and_calls_the_original(tmp_path: Path) -> None:
    fates = {fate.finding.target.split(".", 3)[-1]: fate for fate in report(tmp_path, LOOP).fates}
    gone = fates.pop("transformer_block.TransformerBlock._checkpointed_forward")
    assert gone.urgency == "breaks"
    assert "AttributeError when the patch is installed" in gone.reasons[0]
    assert [fate.urgency for fate in fates.values()] == ["harmless", "harmless"]
    assert all("calls the original" in fate.reasons[0] for fate in fates.values())


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


def test_a_name_that_is_new_is_replaced_from_now_on(tmp_path: Path) -> None:
    source = """
        from megatron.core.models.gpt import GPTModel

        def _scale_logits(self, logits):
            return logits / 2

        GPTModel._scale_logits = _scale_logits
    """
    (fate,) = report(tmp_path, source).fates
    assert fate.urgency == "different"
    assert "`GPTModel._scale_logits` is new: megatron-core 0.16.1 has none, 0.19.2 has one and `" in fate.reasons[0]
    (fate,) = report(tmp_path, source, "0.18.2", "0.19.2").fates
    assert "is new" not in " ".join(fate.reasons)


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


def test_a_default_that_a_module_took_when_it_was_imported_is_not_replaced() -> None:
    (finding,) = found_in("""
        from megatron.core.transformer.moe import moe_layer

        class Router(moe_layer.TopKRouter):
            def __init__(self, config, pg_collection=None):
                super().__init__(config, pg_collection)

        moe_layer.TopKRouter = Router
    """)
    assert finding.effect == "changes"
    assert "has no effect: `moe_layer` takes it as a default when it is imported" in finding.message
    assert "TypeError" not in finding.message


def test_values_that_megatron_itself_unpacks_otherwise_now(tmp_path: Path) -> None:
    made = report(tmp_path, """
        from megatron.core.transformer.moe.moe_utils import permute

        def grouped(hidden, routing_map):
            tokens, probs, order = permute(hidden, routing_map)
            return tokens
    """).uses.affected  # fmt: skip
    assert [use.exception for use in made] == ["ValueError"]
    assert "unpacks 3 values from `permute`, of which `" in made[0].text


QUIET = """\
from megatron.core.transformer.moe import router


def quiet():
    saved = router.save_to_aux_losses_tracker
    router.save_to_aux_losses_tracker = lambda *args, **kwargs: None
    return saved
"""


def test_the_original_of_a_patch_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    repository.commit({"quiet.py": QUIET})
    done = unpatch("upgrade", "--from", "0.16.1", "--to", "0.19.2", "--write", cwd=tmp_path)
    assert "a patch of that name stands here" in " ".join((done.out + done.err).split())
    assert (tmp_path / "quiet.py").read_text() == QUIET


def test_what_has_no_statements_is_like_nothing() -> None:
    name = "megatron.core.optimizer.optimizer.MegatronOptimizer.get_main_grads_for_grad_norm"
    made = pins.pin(name, [known.model("0.16.1")], patched=True)
    assert made is not None
    assert "sharded_state_dict" not in (pins.difference(made, known.model("0.19.2")) or "")


def test_a_method_that_a_subclass_takes_otherwise_is_called_as_the_subclass_takes_it() -> None:
    """On 0.16.1 an abstract base lacks `inference_context`, and the one class that is built has it."""
    (finding,) = found_in(
        """
        from megatron.core.transformer.multi_latent_attention import MultiLatentAttention

        def forward(self, hidden_states, attention_mask, inference_context=None, **kwargs):
            return self.get_query_key_value_tensors(hidden_states, inference_context=inference_context)

        MultiLatentAttention.forward = forward
        """,
        target=(0, 16, 1),
    )
    assert finding.effect == ""


def test_a_name_that_is_still_to_come_is_not_said_to_have_moved() -> None:
    (finding,) = found_in(
        """
        from megatron.core.models.common import utils

        utils.PostProcessNode = print
        """,
        target=(0, 16, 1),
    )
    assert "does not exist before megatron-core 0.19.0" in finding.message
    assert "there it is `megatron.core.models.gpt.fine_grained_callables.PostProcessNode`" in finding.message
    assert "it is now" not in finding.message


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


def test_a_line_says_which_of_several_steps_it_is_of(tmp_path: Path) -> None:
    write_files(tmp_path, BROKEN)
    old, new = releases("0.18.2", "0.19.2")
    older, _ = releases("0.17.1", "0.19.2")
    made = upgrade([tmp_path], ScanOptions(jobs=1), old, new, also=[(older, old)])
    assert [use.steps for use in made.uses.affected] == ["from 0.18.2 to 0.19.2"]


@pytest.mark.parametrize(("old", "said"), [("0.16.1", True), ("0.18.2", False)])
def test_a_branch_of_the_replacement_that_was_not_taken_before(tmp_path: Path, old: str, said: bool) -> None:
    source = """
        from megatron.core.models.gpt import GPTModel

        try:
            from megatron.core.transformer.multi_token_prediction import process_mtp_loss
            HAS_LOSS = True
        except ImportError:
            HAS_LOSS = False

        def _postprocess(self, *args, **kwargs):
            if HAS_LOSS:
                return process_mtp_loss(*args, **kwargs)
            return args

        GPTModel._postprocess = _postprocess
    """
    (fate,) = report(tmp_path, source, old).fates
    turned = [reason for reason in fate.reasons if "other code of yours runs" in reason]
    told = "`HAS_LOSS` is true on megatron-core 0.19.2, and was not on 0.16.1: other code of yours runs"
    assert turned == ([f"line 11: {told}"] if said else [])


@pytest.mark.parametrize(
    ("table", "loop"),
    [
        (
            '[("megatron.core.utils", "get_model_config", len)]',
            "for m, n, f in TABLE: setattr(importlib.import_module(m), n, f)",
        ),
        (
            '{"megatron.core.utils": ["get_model_config"]}',
            "for m, names in TABLE.items():\n    for n in names: setattr(importlib.import_module(m), n, len)",
        ),
    ],
)
def test_module_and_name_apart_in_a_table(table: str, loop: str) -> None:
    (finding,) = found_in(f"import importlib\nTABLE = {table}\n{loop}\n")
    assert finding.target == "megatron.core.utils.get_model_config"
    assert found_in(f"import importlib\nTABLE = {table.replace('megatron.core', 'other')}\n{loop}\n") == []
