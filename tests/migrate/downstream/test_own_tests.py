"""The downstream's own tests are the judge: what passed before a migration passes after it, or the table names it.

Needs a checkout (`MCORE_UNPATCH_VERL`, `MCORE_UNPATCH_NEMO_RL`, `MCORE_UNPATCH_SKYRL`) and an interpreter with what its
tests import (`MCORE_UNPATCH_DOWNSTREAM_PYTHON`); docs/migrate.md says which, and has the last result.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from own_tests import NEMO_RL, SKYRL, VERL, Downstream, passed

DOWNSTREAMS = pytest.mark.parametrize("downstream", [VERL, NEMO_RL, SKYRL], ids=lambda one: one.name)


def migrated(folder: Path, *arguments: str) -> dict[str, str]:
    """Migrate a copy; what the table says by file."""
    command = [sys.executable, "-m", "mcore_unpatch", "migrate", "--output-format", "json", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = {}
    for remark in json.loads(done.stdout)["remarks"]:
        said[remark["path"]] = said.get(remark["path"], "") + remark["text"]
    return said


def module(path: str) -> str:
    """What a JUnit report calls a test file."""
    return path.removesuffix(".py").replace("/", ".")


@DOWNSTREAMS
def test_what_passed_before_passes_after(downstream: Downstream, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The whole repository; the package alone, of which the tests are no part; and with all that is offered."""
    folder = downstream.copy(tmp_path / "checkout")
    before = passed(downstream.run(folder))
    assert before
    rows = [f"{downstream.name}: before {len(before)} passed"]
    for arguments in (["."], [downstream.package], ["--unsafe-fixes", "."]):
        said = migrated(folder, *arguments)
        after = passed(downstream.run(folder))
        subprocess.run(["git", "-C", str(folder), "checkout", "-q", "."], check=True)
        named = tuple(f"{module(path)}::" for path, text in said.items() if "(line " in text)
        broken = before - after
        rows.append(f"  {' '.join(arguments)}: {len(before & after)} pass, {len(broken)} named in the table")
        unnamed = [name for name in broken if not name.startswith(named)]
        assert not unnamed, f"unpatch migrate {' '.join(arguments)}"
        assert not broken or "--unsafe-fixes" in arguments
    with capsys.disabled():
        print("\n" + "\n".join(rows))
