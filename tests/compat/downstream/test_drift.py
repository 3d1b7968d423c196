"""The command that compares shims with their trainers, on a made-up trainer."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "shim_drift.py"
SAME = """
def patch_gpt_model_forward_for_linear_ce_fusion(*, chunk_size: int) -> None: ...
def from_parallel_hidden_states_to_logprobs(
    tensor_parallel_hidden_states, output_weight_layer, runtime_gather_output, target, vocab_start_index,
    vocab_end_index, tp_group, inference_only: bool = False, cp_group=None, chunk_size: int | None = None,
): ...
"""


def drift(folder: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, str(TOOL), str(folder)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("", "", "2 functions read, 0 drifted"),
        ("cp_group=None,", "cp_group=None, fast=False,", "has no argument 'fast'"),
        ("target, vocab_start_index", "vocab_start_index, target", "'target' stands at another place"),
        (
            "inference_only: bool = False",
            "inference_only: bool = True",
            "inference_only=False here, inference_only=Tru",
        ),
        ("def from_parallel_hidden_states", "def from_hidden_states", "gone from nemo_rl/distributed/model_utils.py"),
    ],
)
def test_what_a_caller_would_notice_is_named(tmp_path: Path, was: str, now: str, said: str) -> None:
    file = tmp_path / "nemo_rl" / "distributed" / "model_utils.py"
    file.parent.mkdir(parents=True)
    file.write_text(SAME.replace(was, now, 1))
    code, text = drift(tmp_path)
    assert said in text
    assert code == (was != "")


def test_a_folder_without_a_trainer_is_no_success(tmp_path: Path) -> None:
    assert drift(tmp_path)[0] == 1
    code, text = drift(tmp_path / "none")
    assert code == 2
    assert "no folder" in text
