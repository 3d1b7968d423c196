"""Text is for people: grouped by file, the line quoted, colour on a terminal, plain in a pipe, brackets kept."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from checking import write_files
from command import unpatch, unpatch_forked, unpatch_process

from reports.sample import FILES


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_files(tmp_path, FILES)
    return tmp_path


def on_a_terminal(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """What the command writes to a pseudo-terminal."""
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", **(env or {})}
    environment.pop("NO_COLOR", None)
    environment.update(env or {})
    process = subprocess.Popen(
        [sys.executable, "-m", "mcore_unpatch", *arguments], cwd=cwd, stdout=child, stderr=child, env=environment
    )
    os.close(child)
    output = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        output += piece
    process.wait()
    os.close(parent)
    return output.decode()


def test_grouped_by_file_with_the_line_quoted(project: Path) -> None:
    output = unpatch("scan", "-v", cwd=project).out
    head, _, rest = output[output.index("pkg/patches.py\n") :].partition("\n")
    assert head == "pkg/patches.py"
    assert rest.startswith("  6:5  MCU101  megatron.core.models.gpt.gpt_model.GPTModel.forward  [output]\n")
    assert "       6 |     GPTModel.forward = fast\n" in rest
    assert "output_processor" in rest
    assert "also backup 2, restore 10" in rest
    assert output.count("pkg/patches.py") == 1


def test_a_test_is_said_to_be_one(tmp_path: Path) -> None:
    write_files(tmp_path, {"tests/test_a.py": "from megatron.core import utils\nutils.get_model_config = print\n"})
    assert "[none]  in a test\n" in unpatch("scan", "-v", cwd=tmp_path).out


def test_a_pipe_has_80_columns(project: Path) -> None:
    output = unpatch_process("scan", "-v", cwd=project, env={"COLUMNS": ""}).out
    assert 70 < max(len(line) for line in output.splitlines() if " | " not in line) <= 80


def test_no_colour_in_a_pipe_and_brackets_stay(project: Path) -> None:
    result = unpatch_process("scan", "-v", cwd=project, env={"TERM": "xterm-256color", "FORCE_COLOR": ""})
    assert "\x1b" not in result.out + result.err
    assert 'lambda hidden: hidden[0]["[bold]"]' in result.out


def test_types_in_brackets_stay(tmp_path: Path) -> None:
    write_files(
        tmp_path, "from megatron.core import utils\nutils.get_model_config = cast[dict[str, int]](print)  # [/]\n"
    )
    assert "utils.get_model_config = cast[dict[str, int]](print)  # [/]" in unpatch("scan", "-v", cwd=tmp_path).out


def test_colour_on_a_terminal_and_brackets_stay(project: Path) -> None:
    output = on_a_terminal("scan", "-v", cwd=project)
    assert "\x1b[" in output
    assert '["[bold]"]' in output
    assert "Traceback" not in output


def test_no_color_is_respected(project: Path) -> None:
    output = on_a_terminal("scan", "-v", cwd=project, env={"NO_COLOR": "1"})
    assert "\x1b[3" not in output


def test_a_long_line_is_not_wrapped(tmp_path: Path) -> None:
    text = "utils.get_model_config = choose(" + ", ".join(f"name_{n}" for n in range(60)) + ")"
    write_files(tmp_path, f"from megatron.core import utils\n{text}\n")
    assert text in unpatch("scan", "-v", cwd=tmp_path).out
    assert text in on_a_terminal("scan", "-v", cwd=tmp_path, env={"NO_COLOR": "1", "COLUMNS": "80"})


def test_errors_go_to_stderr(project: Path) -> None:
    result = unpatch_forked("scan", cwd=project)
    assert result.err == "error: broken.py: syntax error on line 2: '(' was never closed\n"


def test_the_last_line_says_when_only_new_findings_were_asked_for() -> None:
    from mcore_unpatch.findings.finding import Report
    from mcore_unpatch.report.text import lines

    def last(report: Report) -> str:
        return "".join(text for text, _ in list(lines(report))[-1])

    assert last(Report("/", 3)) == "No patch of Megatron Core found; 3 files scanned."
    assert last(Report("/", 3, only="new")) == "No new patch of Megatron Core found; 3 files scanned."
