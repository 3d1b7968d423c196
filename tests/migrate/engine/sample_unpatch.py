"""The command line in this process, with the codemod of the sample repository in the place of the real ones."""

import contextlib
import sys
import types
from pathlib import Path
from typing import NamedTuple

import pytest
from sample_repository import planner
from typer.testing import CliRunner

from mcore_unpatch.cli import app

PLANNER = "mcore_unpatch.codemods.planner"


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: bytes
    err: bytes


def unpatch(folder: Path, *arguments: str) -> Done:
    """Run a command from a folder."""
    stand_in = types.ModuleType(PLANNER)
    stand_in.plan, stand_in.downstreams = planner, lambda *_: []  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setitem(sys.modules, PLANNER, stand_in)
        done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, SystemExit | None), done.exception
    return Done(done.exit_code, done.stdout_bytes, done.stderr_bytes)
