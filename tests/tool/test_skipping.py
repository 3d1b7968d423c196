"""Every skip of the suite says how to make its test run."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from limits import patience
from skipping import remedy

TESTS = Path(__file__).parents[1]


def reasons() -> list[tuple[str, str]]:
    """Where the tests skip, and what they say there; parts that are filled in stand as `X`."""
    said = []
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.skip", "pytest.mark.skipif"):
                given = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "reason")]
                text = given[-1]
                if isinstance(text, ast.Constant | ast.JoinedStr):
                    words = ast.unparse(text)
                    said.append((f"{path.name}:{node.lineno}", re.sub(r"\{[^}]*\}", "MCORE_UNPATCH_VERL X", words)))
    return said


def test_every_reason_leads_to_a_command() -> None:
    said = reasons()
    assert len(said) > 20
    assert not [place for place, reason in said if not remedy(reason)], "add what to do to tests/skipping.py"


@pytest.mark.slow
def test_the_commands_are_printed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from skipping import pytest_terminal_summary\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.parametrize('n', range(3))\n"
        "def test_a(n):\n    pytest.skip('needs a GPU')\n\n"
        "def test_b():\n    pytest.skip('a reason of its own')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "."],
        cwd=tmp_path,
        env={"PYTHONPATH": str(TESTS), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(120),
    )
    assert "    3 make test on a machine with an NVIDIA GPU" in done.stdout
    assert "    1 a reason of its own" in done.stdout
