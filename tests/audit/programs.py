"""Small programs in real processes of their own, on a chosen release of megatron-core.

Importing torch and Megatron takes seconds, so one process imports them and forks for each program. A program prints
nothing: the value it leaves in `said` comes back.
"""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from downloads import unpacked

RELEASES = ("0.18.2", "0.19.2")
_FORKS = """
import json, os, sys, tempfile, warnings
warnings.simplefilter("ignore")
answers = os.dup(1)
os.dup2(2, 1)  # Megatron and gloo talk
import torch, megatron.core
from megatron.core import parallel_state
from mcore_unpatch import audit
from mcore_unpatch.verify.models import Setting, batch, build

def world(**sizes):
    name = "file://" + tempfile.mktemp()
    torch.distributed.init_process_group("gloo", init_method=name, rank=0, world_size=1)
    parallel_state.initialize_model_parallel(**sizes)

said = {}
for name, code in json.loads(sys.stdin.read()).items():
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        scope = dict(globals(), said=None)
        try:
            exec(compile(code, name, "exec"), scope)
            text = json.dumps(scope["said"])
        except BaseException as error:
            import traceback
            text = json.dumps("Traceback: " + traceback.format_exc())
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        said[name] = json.load(pipe)
    os.waitpid(child, 0)
os.write(answers, json.dumps(said).encode())
"""


def in_forks(release: str, programs: Mapping[str, str], *paths: Path | str) -> dict[str, Any]:
    """What each program left in `said`, run on a release, with folders before everything installed."""
    sources = {name: textwrap.dedent(code) for name, code in programs.items()}
    done = subprocess.run(
        [sys.executable, "-c", _FORKS],
        env=environment(release, *paths),
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    failures = [str(answer) for answer in answers.values() if str(answer).startswith("Traceback")]
    assert not failures, failures[0]
    return answers


def environment(release: str, *paths: Path | str) -> dict[str, str]:
    """The environment in which `import megatron.core` finds a release."""
    folders = [*map(str, paths), str(unpacked("megatron-core", release))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONWARNINGS": "ignore"}
