"""Small programs in processes of their own, on a chosen release of megatron-core, with the package imported.

A program prints nothing: the value it leaves in `said` comes back.
"""

import json
import os
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from downloads import unpacked
from prepared import run_prepared

RELEASES = ("0.18.2", "0.19.2")


def in_forks(release: str, programs: Mapping[str, str], *paths: Path | str) -> dict[str, Any]:
    """What each program left in `said`, run on a release, with folders before everything installed."""
    answers, script = {}, Path(__file__).with_name("one_program.py")
    with tempfile.TemporaryDirectory() as folder:
        code, answer = Path(folder, "code.py"), Path(folder, "answer.json")
        for name, text in programs.items():
            code.write_text(textwrap.dedent(text))
            done = run_prepared(unpacked("megatron-core", release), script, name, code, answer, *paths)
            assert done.returncode == 0, done.stderr
            answers[name] = json.loads(answer.read_text())
    return answers


def environment(release: str, *paths: Path | str) -> dict[str, str]:
    """The environment in which `import megatron.core` finds a release, and torch no GPU, which no fork can use."""
    folders = [*map(str, paths), str(unpacked("megatron-core", release)), os.environ.get("PYTHONPATH", "")]
    on_path = os.pathsep.join(filter(None, folders))
    return {**os.environ, "PYTHONPATH": on_path, "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
