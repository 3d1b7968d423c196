"""Draw what `unpatch upgrade` says: of the sample project (`docs/img/terminal.svg`), of veRL (`docs/img/verl.svg`).

python tools/record_terminal.py [CLONE_OF_VERL]     with a clone, the table of veRL too
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "img"
SAMPLE = ["upgrade", "--from", "0.17", "--to", "0.19"]
VERL = ["upgrade", "--to", "0.19.2"]


def sample() -> str:
    """The whole answer for the sample project."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "tiny_rl"
        shutil.copytree(ROOT / "examples" / "tiny_rl", project)
        subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
        return _drawn(SAMPLE, _on_a_terminal(SAMPLE, project))


def table(clone: Path) -> str:
    """The table of patches and Megatrons alone, which is the first part of the answer."""
    said = _on_a_terminal(VERL, clone)
    return _drawn(VERL, re.split(r"\n(?=[^\n]*Raises on )", said)[0] + "...\n")


def _drawn(arguments: list[str], said: str) -> str:
    """The command and what it prints, in colour, 80 columns wide; no font is fetched from anywhere."""
    console = Console(record=True, width=80, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115 - until the end
    console.print(Text(f"$ unpatch {' '.join(arguments)}", style="bold"))
    console.print(Text.from_ansi(said), soft_wrap=True)
    drawn = console.export_svg(title="unpatch", theme=MONOKAI, unique_id="unpatch")
    return re.sub(r"@font-face {.*?}\s*", "", drawn, flags=re.DOTALL)


def _on_a_terminal(arguments: list[str], folder: Path) -> str:
    command = [sys.executable, "-P", "-m", "mcore_unpatch", *arguments]
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    subprocess.run(command, cwd=folder, env=env, stdout=theirs, stderr=subprocess.DEVNULL, check=True)
    os.close(theirs)
    parts = []
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
        while part := os.read(ours, 4096):
            parts.append(part)
    os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n")


if __name__ == "__main__":
    (PICTURES / "terminal.svg").write_text(sample(), encoding="utf-8")
    if sys.argv[1:]:
        (PICTURES / "verl.svg").write_text(table(Path(sys.argv[1])), encoding="utf-8")
