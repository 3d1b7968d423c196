"""Programs in processes that have imported already what takes long: torch and a Megatron, or this tool.

A server for each Megatron, and one for the tool, forks for them: imports take longer than most programs compute. All
workers of a run share the servers. Each is started when a test first asks for it, and ends with the worker that did.
"""

import atexit
import fcntl
import gc
import hashlib
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

SHARED = "MCORE_UNPATCH_PREPARED"  # names the folder of the sockets
_WITH_MEGATRON = (
    "torch",
    "megatron.core.models.gpt.gpt_model",
    "megatron.core.models.gpt.gpt_layer_specs",
    "megatron.core.optimizer",
    "megatron.core.distributed",
    "megatron.core.pipeline_parallel",
    "megatron.core.dist_checkpointing",
)
_OF_THE_TOOL = (
    *(f"mcore_unpatch.commands.{name}" for name in ("scan", "check", "migrate", "upgrade", "pin", "rules")),
    "mcore_unpatch.cli",
    "mcore_unpatch.rewrites",
    "libcst",
)
# What has computed with several threads must not be forked, and no fork can use a GPU.
_ALONE = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def run_prepared(
    megatron: Path | None,
    script: Path,
    *arguments: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of a script, with an unpacked Megatron before everything installed, and no GPU.

    Without a Megatron: where the tool is imported, and neither torch nor Megatron.
    """
    from limits import patience

    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        program = [str(script), *map(str, arguments)]
        with _connected(megatron and megatron.resolve()) as connection:
            connection.send(
                (program, str(cwd or Path.cwd()), {**os.environ, **(env or {}), **_ALONE}, str(out), str(err))
            )
            group = connection.recv()
            if not connection.poll(patience(300)):
                os.killpg(group, signal.SIGKILL)
                raise subprocess.TimeoutExpired(program, 300, *map(_text, (out, err)))
            return subprocess.CompletedProcess(program, connection.recv(), *map(_text, (out, err)))


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""


def _connected(megatron: Path | None) -> "Connection[Any, Any]":
    address = Path(os.environ[SHARED], hashlib.sha256(str(megatron).encode()).hexdigest()[:16])
    with address.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the other workers wait for the one that starts it
        with suppress(OSError):
            return Client(str(address))
        address.unlink(missing_ok=True)
        paths = [*([megatron] if megatron else []), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, **_ALONE, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        modules = _WITH_MEGATRON if megatron else _OF_THE_TOOL
        command = [sys.executable, __file__, str(address), *modules]
        server = subprocess.Popen(command, env=env, stdin=subprocess.PIPE)
        atexit.register(server.communicate)  # the end of its input is its own
        while not address.exists():
            assert server.poll() is None, f"no process with {megatron or 'the tool'} can be started"
            time.sleep(0.05)
        return Client(str(address))


def serve(address: str, *modules: str) -> None:
    """Import the modules and fork for everybody who connects, until the process that started this one is gone."""
    warnings.simplefilter("ignore")
    for name in modules:
        __import__(name)
    gc.freeze()
    with Listener(address) as listener:
        waiting = listener._listener._socket  # type: ignore[attr-defined]
        while sys.stdin not in select.select([waiting, sys.stdin], [], [])[0]:
            connection = listener.accept()
            if os.fork() == 0:
                os.setsid()
                connection.send(os.getpid())
                program, cwd, env, out, err = connection.recv()
                if (pid := os.fork()) == 0:
                    _become(program, cwd, env, out, err)
                connection.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os._exit(0)
            connection.close()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _become(program: list[str], cwd: str, env: dict[str, str], out: str, err: str) -> None:
    """What a new interpreter would make of it, up to the end of the process."""
    null = os.open(os.devnull, os.O_RDONLY)
    for stream, handle in enumerate((null, *(os.open(name, os.O_WRONLY | os.O_CREAT) for name in (out, err)))):
        os.dup2(handle, stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = program
    sys.path[:0] = [str(Path(program[0]).parent), *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    code: Any = 0
    try:
        runpy.run_path(program[0], run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    serve(*sys.argv[1:])
