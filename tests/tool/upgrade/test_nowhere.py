"""Names of Megatron that no release has, and uses that are wrong on the release in use: none of them is silent."""

import textwrap
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
VALUE = """
    import megatron.training.utils

    megatron.training.utils.ALL_MODULE_WRAPPER_CLASSNAMES = tuple(
        list(megatron.training.utils.ALL_MODULE_WRAPPER_CLASSNAMES) + [int]
    )
"""
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


@pytest.mark.parametrize(("source", "old", "error", "name"), [
    (CLASS, "0.18.2", "AttributeError", "param_and_grad_buffer.ParamAndGradBuffer"),
    (MODULE, "0.18.2", "ModuleNotFoundError", "lora_adapter.LoraAdapter"),
    (VALUE, "0.18.2", "AttributeError", "utils.ALL_MODULE_WRAPPER_CLASSNAMES"),
    (VALUE, "0.12.1", "AttributeError", "utils.ALL_MODULE_WRAPPER_CLASSNAMES"),
])  # fmt: skip
def test_a_name_that_no_release_has_raises(tmp_path: Path, source: str, old: str, error: str, name: str) -> None:
    write_files(tmp_path, source)
    result = unpatch("upgrade", "--from", old, "--check", cwd=tmp_path)
    said = " ".join(result.out.split())
    assert (result.code, "harmless" in said, "Will raise (1)" in said) == (FINDINGS, False, True)
    lacks = "is not in megatron-core 0.19.2" if source == VALUE else "is in no release of megatron-core since 0.12"
    assert f"{error} when the file is imported `{name}` {lacks}" in said


@pytest.mark.parametrize("files", [{"a.py": ADDED}, {"a.py": MODULE, "megatron.patch": BROUGHT}])
def test_what_the_repository_brings_itself_does_not_raise(tmp_path: Path, files: dict[str, str]) -> None:
    write_files(tmp_path, files)
    assert "Will raise" not in unpatch("upgrade", "--from", "0.18.2", cwd=tmp_path).out


def test_what_fits_neither_release_is_listed(tmp_path: Path) -> None:
    write_files(tmp_path, WRONG)
    result = unpatch("upgrade", "--from", "0.18.2", "--check", cwd=tmp_path)
    out = " ".join(result.out.split())
    assert (
        "Fits neither release: never run, or run on another Megatron (1) patches.py:5 TypeError when `main` is called"
        in out
    )
    assert out.endswith("before the move to megatron-core 0.19.2; 1 place fits neither release.")
    assert result.code == 0
    for style in ("github",):
        assert "patches.py" not in unpatch("upgrade", "--from", "0.18.2", "--output-format", style, cwd=tmp_path).out
    told = unpatch("upgrade", "--from", "0.18.2", "--output-format", "json", cwd=tmp_path).json
    assert ([use["line"] for use in told["fits_neither"]], told["uses"]) == ([5], [])


def test_what_fits_neither_release_is_listed_once_where_a_patch_brings_it(tmp_path: Path) -> None:
    patch = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = lambda *args, **more: main()\n"
    write_files(tmp_path, textwrap.dedent(WRONG) + patch)
    out = unpatch("upgrade", "--from", "0.18.2", "--all", cwd=tmp_path).out
    assert (out.count("no_such_argument"), "Not urgent" in out) == (1, False)


BETWEEN = (
    "from megatron.core.pipeline_parallel.fine_grained_activation_offload import fine_grained_offloading_group_commit\n"
)


def test_a_name_that_came_after_the_release_in_use_and_went_raises(tmp_path: Path) -> None:
    """What runs the file is a fork, or a newer Megatron than the repository says."""
    write_files(tmp_path, BETWEEN)
    out = " ".join(unpatch("upgrade", "--from", "0.15.0", cwd=tmp_path).out.split())
    assert "Will raise (1) patches.py:1 ImportError when the file is imported" in out
    assert "does not exist after megatron-core 0.18.2; 0.15.0 does not have it yet" in out
    assert "1 place needs work" in out
