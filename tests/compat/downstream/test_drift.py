"""The command that compares shims with their trainers, on a made-up trainer."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "shim_drift.py"
SAME = """
def gather_logprobs(logits, labels, temperature: float = 1.0, tp_group=None, chunk_size: int = 1024): ...
def gather_logprobs_entropy(
    logits, labels, temperature: float = 1.0, tp_group=None, chunk_size: int = 1024
) -> tuple[Tensor, Tensor]: ...
"""


def drift(folder: Path, source: str) -> tuple[int, str]:
    file = folder / "areal" / "utils" / "functional" / "vocab_parallel.py"
    file.parent.mkdir(parents=True)
    file.write_text(source)
    (folder / "areal" / "utils" / "data.py").write_text(
        "def unpad_logits(logits, padding_length, cu_seqlens=None, old_cu_seqlens=None): ..."
    )
    done = subprocess.run([sys.executable, str(TOOL), str(folder)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_nothing_has_drifted(tmp_path: Path) -> None:
    code, text = drift(tmp_path, SAME)
    assert code == 0, text
    assert "3 functions read, 0 drifted" in text


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("chunk_size: int = 1024)", "chunk_size: int = 1024, fast=False)", "has no argument 'fast'"),
        ("labels, temperature", "labels, *, temperature", "same"),
        ("logits, labels, temperature", "labels, logits, temperature", "'labels' stands at another place"),
        ("chunk_size: int = 1024)", "chunk_size: int = 2048)", "chunk_size=1024 here, chunk_size=2048 there"),
        ("tuple[Tensor, Tensor]", "tuple[Tensor, Tensor, Tensor]", "returns 2 values here, 3 values there"),
        ("def gather_logprobs(", "def gather_log_probs(", "gone from areal/utils/functional/vocab_parallel.py"),
    ],
)
def test_what_a_caller_would_notice_is_named(tmp_path: Path, was: str, now: str, said: str) -> None:
    code, text = drift(tmp_path, SAME.replace(was, now, 1))
    assert said in text
    assert code == (0 if said == "same" else 1)


def test_a_folder_without_a_trainer_is_no_success(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(TOOL), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    done = subprocess.run(
        [sys.executable, str(TOOL), str(tmp_path / "none")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no folder" in done.stderr
