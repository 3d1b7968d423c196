"""Names of Megatron that no release has, and uses that are wrong on the release in use: none of them is silent."""

from pathlib import Path

import pytest
from checking import write_files
from command import FINDINGS, unpatch

CLASS = """
    import megatron.core.distributed.param_and_grad_buffer as buffer

    def start_grad_sync(self):
        pass

    buffer.ParamAndGradBuffer.start_grad_sync = start_grad_sync
"""
MODULE = "from megatron.core.transformer.lora_adapter import LoraAdapter\n"
ADDED = """
    from megatron.core.transformer.moe import moe_utils

    moe_utils.of_our_own = len
    moe_utils.of_our_own()
"""
BROUGHT = """
    diff --git a/megatron/core/transformer/lora_adapter.py b/megatron/core/transformer/lora_adapter.py
    new file mode 100644
    --- /dev/null
    +++ b/megatron/core/transformer/lora_adapter.py
    @@ -0,0 +1 @@
    +class LoraAdapter: pass
"""
WRONG = """
    from megatron.training import pretrain

    def main():
        pretrain(None, None, None, None, no_such_argument=1)
"""


@pytest.mark.parametrize(("source", "error", "name"), [
    (CLASS, "AttributeError", "ParamAndGradBuffer"),
    (MODULE, "ModuleNotFoundError", "LoraAdapter"),
])  # fmt: skip
def test_a_name_that_no_release_has_raises(tmp_path: Path, source: str, error: str, name: str) -> None:
    write_files(tmp_path, source)
    result = unpatch("upgrade", "--from", "0.18.2", "--check", cwd=tmp_path)
    said = " ".join(result.out.split())
    assert (result.code, "Raises on 0.19.2 (1)" in said) == (FINDINGS, True)
    assert f"when the file is imported 0.19.2 {error}: `{name}` is gone." in said


@pytest.mark.parametrize("files", [{"a.py": ADDED}, {"a.py": MODULE, "megatron.patch": BROUGHT}])
def test_what_the_repository_brings_itself_does_not_raise(tmp_path: Path, files: dict[str, str]) -> None:
    write_files(tmp_path, files)
    assert "Raises" not in unpatch("upgrade", "--from", "0.18.2", cwd=tmp_path).out


def test_what_fits_neither_release_is_told_with_both(tmp_path: Path) -> None:
    write_files(tmp_path, WRONG)
    out = " ".join(unpatch("upgrade", "--from", "0.18.2", cwd=tmp_path).out.split())
    assert "Raises on what you run today (1) patches.py:5 nothing here calls main 0.18.2, 0.19.2 TypeError" in out
    assert "passes `no_such_argument`, which is in no release; a fork may have it" in out


BETWEEN = (
    "from megatron.core.pipeline_parallel.fine_grained_activation_offload import fine_grained_offloading_group_commit\n"
)


def test_a_name_that_came_after_the_release_in_use_and_went_raises(tmp_path: Path) -> None:
    """What runs the file is a fork, or a newer Megatron than the repository says."""
    write_files(tmp_path, BETWEEN)
    out = " ".join(unpatch("upgrade", "--from", "0.15.0", cwd=tmp_path).out.split())
    assert "patches.py:1 when the file is imported 0.15.0, 0.19.2 ImportError" in out
    assert "is gone since 0.19.0" in out
