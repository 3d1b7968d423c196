"""Small programs in real processes of their own, on a chosen release of megatron-core.

Importing torch and Megatron takes seconds, so one process imports them and forks for each program, which imports the
package. A program prints nothing: the value it leaves in `said` comes back.
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
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # Megatron and gloo talk
import torch, megatron.core
from megatron.core import parallel_state

def world(**sizes):
    name = "file://" + tempfile.mktemp()
    torch.distributed.init_process_group("gloo", init_method=name, rank=0, world_size=1)
    parallel_state.initialize_model_parallel(**sizes)

for line in sys.stdin:
    name, code, paths = json.loads(line)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        sys.path[:0] = paths
        try:
            from mcore_unpatch import audit
            from mcore_unpatch.verify.models import Setting, batch, build
            scope = dict(globals(), said=None)
            exec(compile(code, name, "exec"), scope)
            text = json.dumps(scope["said"])
        except BaseException as error:
            import traceback
            text = json.dumps("Traceback: " + traceback.format_exc())
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        answers.write(pipe.read() + "\\n")
    answers.flush()
    os.waitpid(child, 0)
"""


PROCESSES: dict[str, subprocess.Popen[str]] = {}  # one for each release: it ends with the tests, when its input does


def start(release: str) -> subprocess.Popen[str]:
    """A process that forks for programs on a release."""
    command, env = [sys.executable, "-P", "-c", _FORKS], environment(release)
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def in_forks(release: str, programs: Mapping[str, str], *paths: Path | str) -> dict[str, Any]:
    """What each program left in `said`, run on a release, with folders before everything installed."""
    if release not in PROCESSES:
        PROCESSES[release] = start(release)
    process, answers = PROCESSES[release], {}
    assert process.stdin is not None
    assert process.stdout is not None
    for name, code in programs.items():
        process.stdin.write(json.dumps([name, textwrap.dedent(code), [*map(str, paths)]]) + "\n")
        process.stdin.flush()
        answers[name] = json.loads(process.stdout.readline())
        assert not str(answers[name]).startswith("Traceback"), answers[name]
    return answers


def environment(release: str, *paths: Path | str) -> dict[str, str]:
    """The environment in which `import megatron.core` finds a release, and torch no GPU, which no fork can use."""
    folders = [*map(str, paths), str(unpacked("megatron-core", release)), os.environ.get("PYTHONPATH", "")]
    on_path = os.pathsep.join(filter(None, folders))
    return {**os.environ, "PYTHONPATH": on_path, "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
