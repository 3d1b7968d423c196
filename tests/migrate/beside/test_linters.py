"""The forms of the edits under the linters that four repositories configure: nothing new in an edited file."""

from __future__ import annotations

from pathlib import Path

import pytest
from beside_forms import LEGACY
from command import unpatch
from linters import linted, linters_of
from repository import Repository

FILE = "verl/models/mcore/mtp_patch.py"
HOOKS = "repos:\n  - repo: local\n    hooks:\n"
STYLES = {  # of veRL and the Bridge, of NeMo RL, of ms-swift, and of others
    "ruff": {"pyproject.toml": '[tool.ruff]\nline-length = 120\nlint.select = ["E", "F", "UP", "B", "I", "G"]\n'},
    "ruff of 88 columns": {"pyproject.toml": '[tool.ruff.lint]\nselect = ["D", "F", "I"]\nignore = ["D1"]\n'},
    "flake8 isort yapf": {
        "setup.cfg": "[isort]\nline_length = 120\nmulti_line_output = 0\nno_lines_before = STDLIB,LOCALFOLDER\n"
        "default_section = THIRDPARTY\n[yapf]\nBASED_ON_STYLE = pep8\nCOLUMN_LIMIT = 120\n"
        "BLANK_LINE_BEFORE_NESTED_CLASS_OR_DEF = true\n[flake8]\nmax-line-length = 120\nselect = B,C,E,F,P,T4,W,B9\n"
    },
    "black isort": {"pyproject.toml": '[tool.isort]\nprofile = "black"\n'},
}
HOOKS_OF = {"ruff of 88 columns": "ruff ruff-format", "ruff": "ruff ruff-format"}
IMPORT = "from verl.models.mcore.mtp_patch import patch_postprocess\n"
USES = {
    "between imports": f"import torch\nfrom megatron.core import mpu\n{IMPORT}\nprint(torch, mpu, patch_postprocess)\n",
    "the last import": f"import torch\n{IMPORT}\n\ndef prepare(model):\n    patch_postprocess(model, torch)\n",
    "in a function": f'def prepare(model):\n    """Prepare."""\n    {IMPORT}\n    patch_postprocess(model)\n',
}


@pytest.mark.parametrize("users", [2, pytest.param(3, marks=pytest.mark.every_case)], ids=["guarded", "handing over"])
@pytest.mark.parametrize("style", STYLES)
def test_nothing_new_is_found(tmp_path: Path, style: str, users: int) -> None:
    made = Repository(tmp_path)
    hooks = HOOKS_OF.get(style, style).split()
    settings = {".pre-commit-config.yaml": HOOKS + "".join(f"      - id: {one}\n" for one in hooks), **STYLES[style]}
    files = {"docker/Dockerfile.a": "RUN pip install megatron-core==0.16.1 # or 0.18.0\n", **settings}
    files |= {FILE: LEGACY.lstrip(), "docker/Dockerfile.b": "RUN pip install megatron-core==0.18.0\n"}
    files |= {f"verl/use_{number}.py": use for number, use in enumerate([*USES.values()][:users])}
    made.commit(files)
    if set(linters_of(tmp_path)) != set(hooks):
        pytest.skip("not all of them are installed")
    chosen = ["--unsafe-fixes", "--select", "MCU1,MCU2,MCU7"]  # the legacy code is a short one
    planned = unpatch("migrate", "--check", "--output-format", "json", *chosen, cwd=tmp_path).json
    edited = [one["path"] for one in planned["files"]]
    assert edited == ([FILE] if users == 3 else ["verl/use_0.py", "verl/use_1.py"])
    before = {file: linted(tmp_path, file) for file in edited}
    assert unpatch("migrate", *chosen, cwd=tmp_path).code == 0
    new = {file: linted(tmp_path, file) - before[file] for file in edited}
    assert not any(new.values()), new
