"""compat as a dependency of a framework: an image that installs without dependencies runs it, on Python 3.11 as well.

In the suite the operator runs on the Python of the suite, and what it loads is compiled for 3.11; torch for another
Python would be a long download.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from limits import patience

ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(not (ROOT / "compat").is_dir(), reason="looks at the sources of a checkout"),
]
OF_THE_TOOL = ("typer", "rich", "libcst")

PROGRAM = f"""
import importlib.util, json, pkgutil, sys
sys.modules.update(dict.fromkeys({(*OF_THE_TOOL, "megatron")!r}))
import mcore_unpatch.compat as compat
assert "torch" not in sys.modules
import torch
hidden, weight = (torch.randn(n, 8, requires_grad=True) for n in (3, 20))
log_probs, entropy = compat.linear_logprob(hidden, weight, torch.tensor([1, 5, 19]), entropy=True)
(log_probs + entropy).sum().backward()
if importlib.util.find_spec("triton"):
    from mcore_unpatch.compat.verl.linear_cross_entropy import linear_cross_entropy
    again, _ = linear_cross_entropy(hidden, weight, torch.tensor([1, 5, 19]))
    assert torch.equal(again, log_probs)
truth = (hidden.detach() @ weight.detach().t()).log_softmax(1)[[0, 1, 2], [1, 5, 19]]
torch.testing.assert_close(log_probs.detach(), truth)
assert weight.grad.isfinite().all()

del sys.modules["megatron"]  # all else needs it, and still nothing that the tool needs
for found in pkgutil.walk_packages(compat.__path__, compat.__name__ + "."):
    needs_triton = ".triton" in found.name or found.name.endswith("verl.linear_cross_entropy")
    if not needs_triton or importlib.util.find_spec("triton"):
        importlib.import_module(found.name)
for name in compat.__all__:
    getattr(compat, name)
print(json.dumps({{name: module.__file__ for name, module in sys.modules.items() if name.startswith("mcore_unpatch")}}))
"""


def test_it_runs_from_an_install_without_dependencies(tmp_path: Path) -> None:
    """The operator without Megatron, and every module without what the tool needs, each in the words of Python 3.11."""
    source, target = tmp_path / "source", tmp_path / "target"
    left_out = shutil.ignore_patterns("__pycache__")
    for name in ("mcore_unpatch", "codemods", "compat"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=left_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    install = ["install", "--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", *install, "--target", target, source], check=True)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(120),
    )
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)
    assert "mcore_unpatch.compat.hook.attach" in files
    for file in map(Path, files.values()):
        assert file.is_relative_to(target)
        ast.parse(file.read_text("utf-8"), feature_version=(3, 11))


def test_the_extra_for_the_operator_is_torch_and_triton() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ops, compat = (project["optional-dependencies"][extra] for extra in ("ops", "compat"))
    assert [one.partition(">")[0] for one in ops] == ["torch", "triton"]
    assert set(ops) < set(compat)
    assert not [one for one in (*project["dependencies"], *compat) if "<" in one.partition(";")[0]]  # no upper bound
