"""The command `unpatch`: in this process where that says enough, as a process of its own where it does not."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from limits import patience
from prepared import run_prepared
from typer.testing import CliRunner

from mcore_unpatch.cli import app

CLEAN, FINDINGS, ERROR = 0, 1, 2
MAIN = Path(__file__).with_name("main.py")


class Result(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The report on stdout."""
        data: dict[str, Any] = json.loads(self.out)
        return data

    @property
    def rules(self) -> list[str]:
        """The rules of the findings in a JSON report."""
        return [finding["rule"] for finding in self.json["findings"]]


def commands() -> dict[str, Any]:
    """Every command by name, with its parameters."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    return {name: group.resolve_command(context, [name])[1] for name in group.list_commands(context)}


def unpatch(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> Result:
    """Run the command in this process, from a folder; `env` is added to the environment."""
    with contextlib.chdir(cwd):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], env=env)
    return checked(Result(result.exit_code, result.stdout, result.stderr))


def importing(*folders: Path) -> dict[str, str]:
    """The PYTHONPATH of a process that imports from some folders first; what stands there already stays."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [*map(str, folders), os.environ.get("PYTHONPATH")]))}


def unpatch_process(
    *arguments: str | Path, cwd: Path, env: dict[str, str] | None = None, prefix: Sequence[str] = ()
) -> Result:
    """Run the command as a process, from a folder; `env` is added to the environment."""
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "mcore_unpatch", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=patience(120),
        check=False,
    )
    return checked(Result(done.returncode, done.stdout, done.stderr))


def unpatch_forked(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> Result:
    """The same, in a process that is forked and need not import the tool: not for what happens as Python starts."""
    done = run_prepared(None, MAIN, *arguments, cwd=cwd, env=env)
    return checked(Result(done.returncode, done.stdout, done.stderr))


def checked(result: Result) -> Result:
    """No command ever ends in a traceback. Each note on a line of its own, however wide the terminal is."""
    joined = re.sub(r"(?m)^note: .*(?:\n  .+)*", lambda note: note[0].replace("\n  ", " "), result.err)
    result = result._replace(err=joined)
    assert "Traceback" not in result.out + result.err, result.err
    assert "internal error" not in result.err, result.err
    return result


def without_privileges() -> list[str]:
    """What to run a command with so that permissions hold for root as well."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root may read everything, and there is no setpriv to change that")
    powers = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}"]
