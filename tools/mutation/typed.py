"""What the type checker notices: `make lint` is the first step of `make check`, and many a slip is a type error."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from tools.mutation.bench import copied_to
from tools.mutation.reach import REPOSITORY
from tools.mutation.trial import Applied, Result

MYPY = "mypy"  # in the place of the test that noticed


def with_types(results: Iterable[Result]) -> Iterator[Result]:
    """The faults that no test noticed, those that the type checker does as noticed by it."""
    survivors = [result for result in results if result.tried is not None and result.noticed_by is None]
    if not survivors or find_spec(MYPY) is None:
        return
    with tempfile.TemporaryDirectory(prefix="types-") as name:
        copy = Path(name)
        copied_to(copy)
        if (REPOSITORY / ".mypy_cache").exists():
            shutil.copytree(REPOSITORY / ".mypy_cache", copy / ".mypy_cache")
        _errors(copy)
        for result in survivors:
            if result.fault.end:
                with Applied(copy, result.fault):
                    said = _errors(copy)
                yield replace(result, noticed_by=MYPY, said=said[:300]) if said else result


def _errors(copy: Path) -> str:
    config = ("--config-file", REPOSITORY / "pyproject.toml", "--no-error-summary")
    ran = subprocess.run(
        [sys.executable, "-m", MYPY, *config, "-p", "mcore_unpatch"], cwd=copy, capture_output=True, text=True
    )
    return " ".join(ran.stdout.split())
