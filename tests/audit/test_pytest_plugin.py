"""The pytest plugin in real test sessions of a small downstream."""

import os
import subprocess
import sys
from pathlib import Path

from checking import write_files
from command import importing
from programs import environment
from small_megatron import LIBRARY as SMALL_MEGATRON

PREPROCESS = "megatron.core.models.gpt.gpt_model.GPTModel._preprocess"
TESTS = """
    import pytest
    from megatron.core.models.gpt.gpt_model import GPTModel

    def preprocess(self): ...

    def test_clean():
        pass

    @pytest.mark.megatron_unpatched
    def test_leaves_it_patched():
        GPTModel._preprocess = preprocess

    def test_after_it(megatron_unpatched):
        pass

    def test_puts_it_back(monkeypatch, megatron_unpatched):
        monkeypatch.setattr(GPTModel, "forward", preprocess)
"""
LOCK = """
    version = 1

    [[pin]]
    name = "megatron.core.models.gpt.gpt_model.GPTModel._preprocess"
    digest = { "0.18.2" = "00000000" }
    where = ["ours.py::install"]
    why = "our embedding"

    [[pin]]
    name = "megatron.core.parallel_state"
    digest = { "0.18.2" = "0589ad9f" }
    until = "0.17"

    [[pin]]
    name = "megatron.core.utils"
    digest = { "0.18.2" = "0589ad9f" }
    until = "0.17"

    [[pin]]
    name = "megatron.core.enums"
    digest = { "0.18.2" = "0589ad9f" }
    until = "0.99"
"""


def session(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=env or dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert "INTERNALERROR" not in done.stdout, done.stdout
    return done.stdout + done.stderr


def check_session(folder: Path, name: str, tests: str, *workers: str, env: dict[str, str]) -> None:
    """The test that leaves the name patched is told, and no other."""
    write_files(folder, {"test_it.py": tests, "pytest.ini": "[pytest]\naddopts = --strict-markers\n"})
    said = session(folder, "--unpatch-audit", *workers, env=env)
    assert "ERROR test_it.py::test_leaves_it_patched" in said
    assert f"{name} is rebound, by test_it.preprocess" in said
    assert "4 passed, 1 error" in said
    assert f"test_it.py::test_leaves_it_patched: {name} is rebound" in said.partition("patched by this session")[2]


def test_a_test_that_leaves_megatron_patched(tmp_path: Path, processes: None) -> None:
    check_session(tmp_path, PREPROCESS, TESTS, env=environment("0.19.2", tmp_path))


def test_under_xdist(tmp_path: Path) -> None:
    write_files(tmp_path, SMALL_MEGATRON)
    tests, env = TESTS, {**os.environ, **importing(tmp_path)}
    for real, small in (
        ("models.gpt.gpt_model", "shapes"),
        ("GPTModel._preprocess", "Shape.backward"),
        ("GPTModel", "Shape"),
    ):
        tests = tests.replace(real, small)
    check_session(tmp_path, "megatron.core.shapes.Shape.backward", tests, "-n", "1", env=env)


def test_each_pin_is_a_test(tmp_path: Path) -> None:
    write_files(tmp_path, {"unpatch.lock": LOCK, "test_it.py": "def test_nothing():\n    pass\n"})
    env = environment("0.18.2", tmp_path)
    said = session(tmp_path, "--unpatch-pins", "--rootdir", str(tmp_path), env=env)
    assert "FAILED ::unpatch[GPTModel._preprocess]" in said or "unpatch[GPTModel._preprocess]" in said
    assert "changed" in said
    assert "why it stays: our embedding" in said
    assert "has a pin until 0.17, and this is 0.18.2; remove it" in said
    assert "3 failed, 2 passed" in said
    assert "raise pins.PinError" not in said  # the sentence alone, and not where it comes from
    assert "1 passed" in session(tmp_path, env=env)  # without the option no pin is looked at
    chosen = session(tmp_path, "--unpatch-pins", "--rootdir", str(tmp_path), "-k", "enums", env=env)
    assert "1 passed, 4 deselected" in chosen


def test_without_a_lock_nothing_is_added(tmp_path: Path) -> None:
    write_files(tmp_path, {"test_it.py": "def test_nothing():\n    pass\n"})
    assert "1 passed" in session(tmp_path, "--unpatch-pins", "--rootdir", str(tmp_path))


def test_the_plugin_costs_nothing_unasked() -> None:
    heavy = "{'torch', 'megatron', 'libcst', 'rich'}"
    code = f"import sys, mcore_unpatch.pytest_plugin; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
