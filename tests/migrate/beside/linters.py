"""The linters and formatters of a repository, as it configures them: what each says of one file."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

_SETTINGS = (".pre-commit-config.yaml", "pyproject.toml", "setup.cfg")
_FORMATTERS = {
    "ruff-format": ("ruff", "format", "--no-cache", "--check"),
    "isort": ("isort", "--check-only"),
    "yapf": ("yapf", "--diff"),
    "black": ("black", "--check", "--quiet"),
}


def linters_of(folder: Path) -> list[str]:
    """The hooks of its pre-commit settings that are installed here."""
    named = re.findall(r"(?m)^ *- id: (\S+)", (folder / _SETTINGS[0]).read_text())
    known = {"ruff", "flake8", *_FORMATTERS}
    return [one for one in dict.fromkeys(named) if one in known and importlib.util.find_spec(one.partition("-")[0])]


def linted(folder: Path, file: str) -> Counter[str]:
    """The codes that linters find in a file, and the formatters that would change it."""
    told: Counter[str] = Counter()
    for linter in linters_of(folder):
        if linter == "ruff":
            for select in ([], ["--select", "I"]):
                done = _run(folder, "ruff", "check", "--no-cache", "--output-format", "json", *select, file)
                told.update(f"ruff {one['code']}" for one in json.loads(done.stdout))
        elif linter == "flake8":
            told.update(line.split()[1] for line in _run(folder, "flake8", file).stdout.splitlines())
        elif _run(folder, *_FORMATTERS[linter], file).returncode:
            told[linter] += 1
    return told


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)
