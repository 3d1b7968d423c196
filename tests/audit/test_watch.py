"""`watch()`, called first: each rebinding in its order, with the line that made it; and the files of the wheel."""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from downloads import unpacked
from programs import environment

PROGRAM = """
    import sys
    from mcore_unpatch import audit

    before = sorted({"torch", "megatron"} & set(sys.modules))
    audit.watch()
    import installs
    from megatron.core.models.gpt.gpt_model import GPTModel

    installs.one()
    installs.other()
    with installs.for_a_while():
        pass
    del GPTModel.set_input_tensor
    report = audit.audit()
    print(sorted(before))
    print(report.save(sys.argv[1]))
"""
INSTALLS = """\
from contextlib import contextmanager

import megatron.core.parallel_state as state
from megatron.core.models.gpt.gpt_model import GPTModel

state.get_tensor_model_parallel_rank = lambda: 0


def one():
    GPTModel.forward = lambda self: 1


def other():
    name = "for" + "ward"
    setattr(GPTModel, name, print)


@contextmanager
def for_a_while():
    before = GPTModel._postprocess
    GPTModel._postprocess = None
    yield
    GPTModel._postprocess = before
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, processes: None) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("watch")
    (folder / "installs.py").write_text(INSTALLS)
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
    release = folder / "site"
    shutil.copytree(unpacked("megatron-core", "0.19.2"), release)
    changed = release / "megatron" / "core" / "enums.py"
    changed.write_text(changed.read_text() + "\n# mine\n")
    (release / "megatron" / "core" / "extra.py").write_text("x = 1\n")
    (release / "megatron" / "core" / "requirements.txt").unlink()
    done = subprocess.run(
        [sys.executable, "program.py", str(folder)],
        cwd=folder,
        env={**environment("0.19.2", release), "RANK": "3"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    imported, file = done.stdout.splitlines()[-2:]
    assert imported == "[]"  # importing the audit imports neither torch nor Megatron
    assert Path(file).name == "audit.rank3.json"
    data: dict[str, Any] = json.loads(Path(file).read_text())
    return data


def test_every_rebinding_in_its_order_with_its_line(report: dict[str, Any]) -> None:
    seen = [(one["name"].rpartition(".")[2], one["stack"][0].rpartition("/")[2]) for one in report["rebindings"][:5]]
    lines = INSTALLS.splitlines()
    expected = [
        ("get_tensor_model_parallel_rank", "state.get_tensor_model_parallel_rank = lambda: 0", "<module>"),
        ("forward", "    GPTModel.forward = lambda self: 1", "one"),
        ("forward", "    setattr(GPTModel, name, print)", "other"),
        ("_postprocess", "    GPTModel._postprocess = None", "for_a_while"),
    ]
    assert seen[:4] == [(name, f"installs.py:{lines.index(text) + 1} in {where}") for name, text, where in expected]
    assert seen[4][0] == "_postprocess"  # put back


def test_a_name_that_is_gone_is_told_at_the_latest_by_the_audit(report: dict[str, Any]) -> None:
    assert "set_input_tensor" in report["rebindings"][-1]["name"]


def test_files_that_are_not_those_of_the_wheel(report: dict[str, Any]) -> None:
    files = {one["name"]: one["by"]["name"] for one in report["deviations"] if one["kind"] == "file"}
    assert files == {
        "megatron/core/enums.py": "differs from the wheel",
        "megatron/core/extra.py": "is not in the wheel",
        "megatron/core/requirements.txt": "is missing, though the wheel has it",
    }
