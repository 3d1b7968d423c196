"""Draw `docs/img/terminal.svg`, the picture of the README: what `unpatch upgrade` says of the sample project.

python tools/record_terminal.py
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
PICTURE = ROOT / "docs" / "img" / "terminal.svg"
COMMAND = ["upgrade", "--from", "0.17", "--to", "0.19"]


def picture() -> str:
    """The command and what it prints, in colour, 80 columns wide; no font is fetched from anywhere."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "tiny_rl"
        shutil.copytree(ROOT / "examples" / "tiny_rl", project)
        subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
        said = _on_a_terminal([sys.executable, "-m", "mcore_unpatch", *COMMAND], project)
    console = Console(record=True, width=80, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115 - until the end
    console.print(Text(f"$ unpatch {' '.join(COMMAND)}", style="bold"))
    console.print(Text.from_ansi(said), soft_wrap=True)
    drawn = console.export_svg(title="unpatch", theme=MONOKAI, unique_id="unpatch")
    return re.sub(r"@font-face {.*?}\s*", "", drawn, flags=re.DOTALL)


def _on_a_terminal(command: list[str], folder: Path) -> str:
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
    PICTURE.write_text(picture(), encoding="utf-8")
