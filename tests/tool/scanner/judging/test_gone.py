"""Names that a release took away: replacements that use them, patches of them, and hooks that are swallowed."""

import json
from importlib.resources import files

import pytest
from checking import check_found, found_in

from mcore_unpatch.megatron import gone

IMPORT = "from megatron.core.models.gpt import GPTModel\n"
LOSS = (
    "from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper\n"
    "def new(self, hidden_states, **kwargs):\n    {}MTPLossLoggingHelper.save_loss_to_tracker(1)\n"
    "    return self.go(**kwargs)\nGPTModel._postprocess = new\n"
)


def test_the_table_is_that_of_the_history() -> None:
    held = json.loads(files("mcore_unpatch.megatron").joinpath("gone.json").read_bytes())
    assert held == gone.from_history()
    assert held["megatron.core.transformer.moe.experts.GroupedMLP"] == "0.16.1"
    assert "megatron.core.models.gpt.gpt_model.GPTModel.forward" not in held


@pytest.mark.parametrize(("release", "said"), [((0, 18), False), ((0, 19), True)])
def test_a_replacement_that_calls_what_is_gone(release: tuple[int, int], said: bool) -> None:
    finding = check_found(IMPORT + LOSS.format(""), options={"target": release})
    words = (
        "`save_loss_to_tracker` does not exist after megatron-core 0.18; use `save_metrics_to_tracker`: AttributeError"
    )
    assert (words in finding.message) is said
    assert ("line 4 uses what is gone" in finding.message) is said


def test_behind_a_test_for_the_release_it_is_not_called() -> None:
    guard = "import megatron.core\n    if megatron.core.__version__ < '0.19': "
    assert "is gone" not in check_found(IMPORT + LOSS.format(guard), options={"target": (0, 19)}).message


def test_a_patch_of_what_is_gone_can_go() -> None:
    source = "from megatron.core.transformer.moe import experts\nclass Mine: ...\nexperts.GroupedMLP = Mine\n"
    finding = check_found(source, options={"target": (0, 19)}, verdict="delete")
    assert finding.evidence == "Megatron has no such name after 0.16.1: nothing calls it."
    check_found(source, options={"target": (0, 16)}, verdict="steps")


@pytest.mark.parametrize(("method", "gone"), [("forward", False), ("allocate_inference_cache", True)])
def test_what_has_another_name_now_is_not_gone(method: str, gone: bool) -> None:
    """`mamba_block` star-imports `hybrid_block`, where `MambaStack` is another name of `HybridStack`."""
    source = f"from megatron.core.ssm.mamba_block import MambaStack\ndef new(self): ...\nMambaStack.{method} = new\n"
    finding = check_found(source, options={"target": (0, 19)})
    assert (finding.verdict == "delete") is gone
    assert ("does not exist" in finding.message) is gone


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("megatron.training.utils.get_batch_on_this_tp_rank", "megatron.core.utils.get_batch_on_this_tp_rank"),
        (
            "megatron.core.models.gpt.fine_grained_callables.PostProcessNode.forward_impl",
            "megatron.core.models.common.utils.PostProcessNode.forward_impl",
        ),
    ],
)
def test_what_moved_is_still_called_where_it_is_now(old: str, new: str) -> None:
    source = f"from mine import manager, new\nmanager.register_patch('{old}', new)\n"
    finding = check_found(source, options={"target": (0, 19)}, verdict="keep")
    assert f"Megatron calls `{new}` in its place" in finding.evidence


def test_not_if_the_original_is_read_which_raises() -> None:
    source = (
        "from megatron.core.transformer.transformer_block import TransformerBlock\n"
        "original = TransformerBlock._checkpointed_forward\n"
        "def new(self, *args):\n    return original(self, *args)\nTransformerBlock._checkpointed_forward = new\n"
    )
    check_found(source, options={"target": (0, 19)}, verdict="keep")


@pytest.mark.parametrize(
    ("body", "dropped"),
    [
        ("return hidden_states", True),
        ("return kwargs['labels']", True),
        ("return kwargs.get('labels')", True),
        ("return kwargs.pop('labels', None)", True),
        ("return 'labels' in kwargs", True),
        ("return kwargs['output_processor']()", False),
        ("return kwargs.get('output_processor')()", False),
        ("return 'output_processor' in kwargs", False),
        ("return self.go(**kwargs)", False),
        ("kwargs.pop('labels'); return self.go(**kwargs)", False),
        ("return self.go(kwargs)", False),
        ("return [kwargs[name] for name in kwargs]", False),
    ],
)
def test_keywords_that_swallow_the_hook(body: str, dropped: bool) -> None:
    source = f"{IMPORT}def new(self, hidden_states, **kwargs):\n    {body}\nGPTModel._postprocess = new\n"
    (finding,) = found_in(source, target=(0, 19))
    assert ("in `**kwargs` but never calls it" in finding.message) is dropped
