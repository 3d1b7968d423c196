"""`unpatch doctor`, with and without torch and Megatron."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

from command import CLEAN, FINDINGS, importing, unpatch, unpatch_process
from downloads import unpacked
from programs import environment

BARE = """
    import runpy, sys
    from importlib import metadata
    hidden = {"torch", "triton", "megatron", "megatron-core"}
    class Hide:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in hidden:
                raise ModuleNotFoundError(name)
    sys.meta_path.insert(0, Hide())
    class Distributions:
        def __init__(self, inner): self.inner = inner
        def __getattr__(self, name): return getattr(self.inner, name)
        def find_distributions(self, context=metadata.DistributionFinder.Context()):
            return () if context.name in hidden else self.inner.find_distributions(context)
    sys.meta_path[:] = [Distributions(f) if hasattr(f, "find_distributions") else f for f in sys.meta_path]
    sys.argv = ["unpatch", "doctor"]
    runpy.run_module("mcore_unpatch", run_name="__main__")
"""


def lines(release: str, tmp_path: Path) -> tuple[int, dict[str, dict[str, str]]]:
    result = unpatch_process("doctor", "--json", cwd=tmp_path, env=environment(release))
    return result.code, {line["about"]: line for line in json.loads(result.out)["lines"]}


def test_a_release_with_the_hook(tmp_path: Path) -> None:
    code, said = lines("0.19.2", tmp_path)
    assert code == CLEAN
    assert said["megatron-core"]["said"] == "0.19.2, as the wheel has it"
    assert said["GPTModel.forward"]["said"] == said["GPTModel.build_schedule_plan"]["said"] == "takes output_processor"
    assert (said["HybridModel.forward"]["state"], "attach()" in said["HybridModel.forward"]["remedy"]) == (
        "missing",
        True,
    )
    assert said["mcore_unpatch.compat"]["said"].startswith("works: veRL")


def test_a_release_before_the_hook(tmp_path: Path) -> None:
    code, said = lines("0.17.1", tmp_path)
    assert code == FINDINGS
    assert said["GPTModel.forward"]["state"] == "wrong"
    assert said["mcore_unpatch.compat"]["said"] == "will not work: GPTModel.forward"


def test_a_checkout(tmp_path: Path) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "megatron").symlink_to(unpacked("megatron-core", "0.18.2") / "megatron")
    result = unpatch_process("doctor", cwd=tmp_path, env=importing(tmp_path / "checkout"))
    assert result.code == CLEAN
    assert "megatron-core                 0.18.2" in result.out


def test_without_torch_and_megatron(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(BARE)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (FINDINGS, False), done.stderr
    for name in ("torch", "triton", "megatron-core"):
        assert f"!!  {name:20}  not installed" in done.stdout
    assert "scan, migrate, check and pin work without it" in " ".join(done.stdout.split())
    assert "will not work: torch, triton, megatron-core" in done.stdout


def test_plain_text_fits_a_terminal(tmp_path: Path) -> None:
    assert "Traceback" not in unpatch("doctor", cwd=tmp_path).out
