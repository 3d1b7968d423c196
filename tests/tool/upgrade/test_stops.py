"""What the older release runs and the newer one never calls: it stops without an error, and that is said as such."""

from pathlib import Path

import pytest
from checking import Source, write_files
from command import CLEAN, FINDINGS, Result, unpatch

OPTIMIZER = """
    from megatron.core.optimizer.optimizer import MegatronOptimizer

    def get_main_grads_for_grad_norm(self):
        return []

    MegatronOptimizer.get_main_grads_for_grad_norm = get_main_grads_for_grad_norm
"""
ROUTING = """
    from megatron.core.transformer.moe import moe_utils, router

    def topk_softmax_with_capacity(logits, topk, *args, **kwargs):
        return logits, logits, logits

    moe_utils.topk_softmax_with_capacity = topk_softmax_with_capacity
    router.topk_softmax_with_capacity = topk_softmax_with_capacity
"""
OVERRIDE = """
    from megatron.core.transformer.transformer_block import TransformerBlock

    class Block(TransformerBlock):
        def _checkpointed_forward(self, hidden_states, *args, **kwargs):
            return super()._checkpointed_forward(hidden_states, *args, **kwargs)
"""
CALLED = """
        def forward(self, hidden_states):
            return self._checkpointed_forward(hidden_states)
"""
PATCH_FILE = """
    diff --git a/megatron/core/utils.py b/megatron/core/utils.py
    --- a/megatron/core/utils.py
    +++ b/megatron/core/utils.py
    @@ -1,2 +1,3 @@
     def nothing_of_this_name():
    +    print("here")
         pass
"""


def upgraded(folder: Path, source: Source, old: str, *options: str) -> Result:
    write_files(folder, source)
    return unpatch("upgrade", "--from", old, "--to", "0.19.2", "--check", *options, cwd=folder)


def test_a_patch_of_what_is_gone_stops_where_the_older_release_calls_it(tmp_path: Path) -> None:
    result = upgraded(tmp_path, OPTIMIZER, "0.18.2")
    said = " ".join(result.out.split())
    assert (result.code, "Numbers differ on 0.19.2 (1)" in said) == (FINDINGS, True)
    assert "any more; `MegatronOptimizer.clip_grad_norm` did." in said


@pytest.mark.parametrize("guard, told", [("if not hasattr(parallel_state, 'is_inside_encoder'): ", False), ("", True)])
def test_a_patch_that_fills_a_gap_of_later_releases_does_not_stop(guard: str, told: bool, tmp_path: Path) -> None:
    source = f"from megatron.core import parallel_state\n{guard}parallel_state.is_inside_encoder = lambda: False\n"
    result = upgraded(tmp_path, source, "0.12.0", "--all")
    assert ("Nobody calls `parallel_state.is_inside_encoder` any more" in " ".join(result.out.split())) is told
    assert (result.code == FINDINGS) is told


def test_what_stops_differs_and_what_has_stopped_does_not(tmp_path: Path) -> None:
    assert "Numbers differ on 0.19.2 (2)" in upgraded(tmp_path, ROUTING, "0.13.1").out
    later = upgraded(tmp_path, ROUTING, "0.16.1")
    assert (later.code, "2 more are ok everywhere, or never run" in later.out) == (CLEAN, True)


def test_an_override_that_nothing_calls_stops_and_does_not_raise(tmp_path: Path) -> None:
    said = " ".join(upgraded(tmp_path, OVERRIDE, "0.16.1").out.split())
    assert "Raises" not in said
    assert "Nobody calls `TransformerBlock._checkpointed_forward` any more; `TransformerBlock.forward` did." in said
    called = " ".join(upgraded(tmp_path, OVERRIDE + CALLED, "0.16.1").out.split())
    assert "Raises on 0.19.2 (1)" in called and "Nobody calls" not in called


def test_patch_files_are_counted_where_nothing_else_is(tmp_path: Path) -> None:
    files = dict.fromkeys(("docker/a.patch", "other/c.patch"), PATCH_FILE)
    said = " ".join(upgraded(tmp_path, files, "0.13.1").out.split())
    assert "2 patch files change Megatron's own source: apply to 0.19.2 to see." in said


MTP = "from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper\n"


def test_a_function_of_a_class_that_became_static(tmp_path: Path) -> None:
    """Called through the class it took its first value all along."""
    code = f"{MTP}MTPLossLoggingHelper.track_mtp_metrics(0.5, 1, None, None, None)\n"
    assert upgraded(tmp_path, {"a.py": code}, "0.18.2").code == CLEAN
