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


def agreed(result: Result, folder: Path, old: str) -> dict[str, int]:
    """The counts of a report, which agree with its text and its exit code."""
    data = unpatch("upgrade", "--from", old, "--to", "0.19.2", "--output-format", "json", cwd=folder).json
    needs_work = bool(data["counts"]["breaks"] + data["counts"]["different"] + len(data["uses"]))
    assert (result.code == FINDINGS) is needs_work is ("Nothing that was read" not in result.out)
    counts: dict[str, int] = data["counts"]
    return counts


def test_a_patch_of_what_is_gone_stops_where_the_older_release_calls_it(tmp_path: Path) -> None:
    result = upgraded(tmp_path, OPTIMIZER, "0.18.2")
    said = " ".join(result.out.split())
    assert "Numbers may change (1)" in said
    assert "`MegatronOptimizer.clip_grad_norm` of 0.18.2 uses it: it stops without an error;" in said
    assert agreed(result, tmp_path, "0.18.2")["different"] == 1


@pytest.mark.parametrize("guard, told", [("if not hasattr(parallel_state, 'is_inside_encoder'): ", False), ("", True)])
def test_a_patch_that_fills_a_gap_of_later_releases_does_not_stop(guard: str, told: bool, tmp_path: Path) -> None:
    source = f"from megatron.core import parallel_state\n{guard}parallel_state.is_inside_encoder = lambda: False\n"
    result = upgraded(tmp_path, source, "0.12.0", "--all")
    assert ("it stops without an error" in " ".join(result.out.split())) is told
    assert ("it does not run on megatron-core 0.12.0, only on >=0.14.0" in result.out) is not told
    assert agreed(result, tmp_path, "0.12.0")["different"] == told
    scanned = unpatch("scan", "--target-mcore", "0.16.1", cwd=tmp_path)
    assert ("changes silently there" in scanned.out) is told


def test_what_stops_is_not_offered_for_deletion_and_what_has_stopped_is(tmp_path: Path) -> None:
    result = upgraded(tmp_path, ROUTING, "0.13.1")
    assert "Numbers may change (2)" in result.out and "deletes" not in result.out
    assert agreed(result, tmp_path, "0.13.1")["different"] == 2
    later = upgraded(tmp_path, ROUTING, "0.16.1")
    assert "Can go now (2)" in later.out and "delete it, or patch what took its place" in " ".join(later.out.split())
    assert agreed(later, tmp_path, "0.16.1")["unnecessary"] == 2


def test_an_override_that_nothing_calls_stops_and_does_not_raise(tmp_path: Path) -> None:
    said = " ".join(upgraded(tmp_path, OVERRIDE, "0.16.1").out.split())
    assert "Will raise" not in said
    assert "nothing calls it; `TransformerBlock.forward` of 0.16.1 does, so it stops without an error" in said
    called = " ".join(upgraded(tmp_path, OVERRIDE + CALLED, "0.16.1").out.split())
    assert "Will raise (1)" in called and "nothing calls it" not in called


def test_a_patch_file_that_no_source_was_held_to_needs_work(tmp_path: Path) -> None:
    result = upgraded(tmp_path, {"megatron.patch": PATCH_FILE}, "0.13.1", "--all")
    assert "was not tried: `--to PATH` tells, of the source that it is for" in " ".join(result.out.split())
    assert agreed(result, tmp_path, "0.13.1")["different"] == 1


def test_patch_files_are_told_apart_from_numbers_a_line_for_each_folder(tmp_path: Path) -> None:
    files = dict.fromkeys(("docker/a.patch", "docker/b.patch", "other/c.patch"), PATCH_FILE)
    for path in files:
        (tmp_path / path).parent.mkdir(exist_ok=True)
    said = " ".join(upgraded(tmp_path, files, "0.13.1").out.split())
    assert "Patch files to apply again (3) docker/a.patch:" in said
    assert " and 1 more file " in said and "other/c.patch:" in said and "b.patch" not in said
    assert "Numbers may change" not in said
    assert "3 patch files have to be tried before you can upgrade" in said


MTP = "from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper\n"


def test_a_function_of_a_class_that_became_static(tmp_path: Path) -> None:
    """Called through the class it took its first value all along."""
    code = f"{MTP}MTPLossLoggingHelper.track_mtp_metrics(0.5, 1, None, None, None)\n"
    assert upgraded(tmp_path, {"a.py": code}, "0.18.2").code == CLEAN


def test_what_differs_between_the_releases_that_run_is_told_for_each(tmp_path: Path) -> None:
    config = "from megatron.core.transformer.transformer_config import TransformerConfig\n"
    files: dict[str, Source] = {
        "a.py": f"{config}TransformerConfig(num_layers=2, hidden_size=8, num_attention_heads=2)\n",
        "pyproject.toml": '[tool.unpatch]\nmegatron = ["0.15.0", "0.17.0"]\n',
    }
    write_files(tmp_path, files)
    said = " ".join(unpatch("upgrade", "--to", "0.19.2", "--all", cwd=tmp_path).out.split())
    assert "from 0.15.0: `mtp_loss_scaling_factor` of `TransformerConfig`, which is not passed, is 0.1" in said
    assert "from 0.17.0: `inference_grouped_gemm_backend`" in said
