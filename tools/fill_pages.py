"""Hooks of mkdocs: what the program says of itself goes into the pages when the site is built.

A line `<!-- commands -->` becomes the help of every command, `<!-- rewrites -->` the page of every codemod, and
`report.html` the report of `unpatch upgrade` on the sample project.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcore_unpatch.codemods.codemod import Codemod

SAMPLE = Path(__file__).parents[1] / "examples" / "tiny_rl"


def commands() -> str:
    """The options of every command, as `--help` prints them."""
    from mcore_unpatch.cli import _MODULES

    return "\n".join(f"## unpatch {name}\n\n```text\n{_help(name)}```\n" for name in _MODULES)


def rewrites() -> str:
    """What each codemod covers, with all its examples, when it is applied, and what to check by hand."""
    return "\n".join(_section(codemod.title, codemod.page()) for codemod in codemods())


def codemods() -> list[Codemod]:
    """The codemods of this package."""
    from mcore_unpatch.codemods.registry import own

    return list(own())


def report() -> str:
    """The HTML report of an upgrade of the sample project."""
    with tempfile.TemporaryDirectory() as folder:
        project, page = Path(folder) / "tiny_rl", Path(folder) / "report.html"
        shutil.copytree(SAMPLE, project)
        subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
        command = ["upgrade", "--from", "0.17", "--to", "0.19", "--output-format", "html", "-o", str(page)]
        subprocess.run([sys.executable, "-P", "-m", "mcore_unpatch", *command], cwd=project, check=True)
        return page.read_text(encoding="utf-8")


MADE = {"<!-- commands -->": commands, "<!-- rewrites -->": rewrites}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page, before it is rendered."""
    for mark, make in MADE.items():
        if mark in markdown:
            markdown = markdown.replace(mark, make())
    return markdown


def on_files(files: Any, *, config: Any, **_: Any) -> Any:
    """Called by mkdocs once it has listed the files; adds the report of the sample project."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "report.html", content=report()))
    return files


def _help(command: str) -> str:
    from typer.testing import CliRunner

    from mcore_unpatch.cli import app

    said = CliRunner(env={"COLUMNS": "90"}).invoke(app, [command, "--help"], prog_name="unpatch")
    return said.stdout.strip("\n") + "\n"


def _section(title: str, page: str) -> str:
    """The page of a codemod, one level down."""
    _, _, body = page.partition("\n")
    return f"## {title}\n{re.sub('^## ', '### ', body, flags=re.MULTILINE)}"
