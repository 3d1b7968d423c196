"""Megatrons from before the hook: what needs it raises ImportError at the import, and all else works."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
from downloads import unpacked
from downstream.importing import NEEDS_HOOK, SHIMS, public_names, said_by_imports
from limits import patience

pytestmark = pytest.mark.ranks


def _release(_: Path) -> tuple[Path, str]:
    return unpacked("megatron-core", "0.16.1"), "0.16.1"


def _before_the_hook_came(folder: Path) -> tuple[Path, str]:
    """A copy of 0.18.0 whose `forward` has no hook, in place of the commit before 97f3bce880, which said 0.18.0 too.

    No wheel was made of that commit.
    """
    copytree(unpacked("megatron-core", "0.18.0") / "megatron", folder / "megatron")
    model = folder / "megatron/core/models/gpt/gpt_model.py"
    text = model.read_text("utf-8")
    start = text.index("    def forward(")
    end = text.index("\n    def ", start)
    forward = text[start:end]
    for name in ("output_processor_context", "output_processor"):
        (parameter,) = [line for line in forward.splitlines(keepends=True) if line.startswith(f"        {name}:")]
        forward = forward.replace(parameter, "").replace(f"{name}={name}", f"{name}=None")
    model.write_text(text[:start] + forward + text[end:], "utf-8")
    return folder, "0.18.0"


@pytest.mark.parametrize("made", [_release, _before_the_hook_came])
def test_without_the_hook_it_is_the_import_that_raises(
    made: Callable[[Path], tuple[Path, str]], tmp_path: Path
) -> None:
    megatron, version = made(tmp_path)
    beside = Path(__file__).parents[1]
    path = os.pathsep.join(map(str, (megatron, beside, beside.parent, *filter(None, [os.environ.get("PYTHONPATH")]))))
    there = "import megatron.core.models.gpt.gpt_model\n"
    others = public_names() if made is _release else {}
    said = said_by_imports([*SHIMS, *NEEDS_HOOK, *others], there, PYTHONPATH=path)
    for asked, text in said.items():
        name = others.get(asked, asked)
        if name in (*SHIMS, *NEEDS_HOOK):
            assert text.startswith("ImportError: mcore_unpatch.compat.")
            assert f"GPTModel.forward has no parameter output_processor (megatron-core {version})" in text
        else:
            assert text == "nothing", asked
    if made is not _release:
        return
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("before_the_hook.py"))],
        env=os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(120),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == f"{version}: all work"
