"""Worker processes, one set per megatron-core release, that stay alive between tests.

Importing torch and megatron-core takes seconds, so each release is imported once, in a parent that forks the ranks.
A job names a function by its file and its name; every rank runs it inside its own fresh gloo world.
"""

import inspect
import itertools
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

RELEASES = ("0.18.2", "0.19.2")
INSTALLED = "0.19.2"
MOST_RANKS = 4
_HERE = Path(__file__).parent


class RankError(AssertionError):
    """A job failed on a rank; the message holds that rank's traceback."""


def run_on_ranks(release: str, ranks: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Run `function(*args)` on `ranks` gloo ranks with megatron-core `release`; return one result per rank."""
    return _pool(release).run(ranks, function, args)


class _Pool:
    def __init__(self, release: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="ranks-")
        self.jobs = itertools.count()
        pipes = [Pipe() for _ in range(MOST_RANKS)]
        self.connections = [ours for ours, _ in pipes]
        ends = [theirs.fileno() for _, theirs in pipes]
        self.process = subprocess.Popen(
            [sys.executable, str(_HERE / "worker.py"), *map(str, ends)],
            env=_environment(release),
            stdout=subprocess.DEVNULL,
            pass_fds=ends,
        )
        for _, theirs in pipes:
            theirs.close()
        found = self.run(1, _installed_release, ())[0]
        assert found == release, f"the workers for megatron-core {release} imported {found}"

    def run(self, ranks: int, function: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
        store = str(Path(self.folder.name) / f"store-{next(self.jobs)}")
        for connection in self.connections[:ranks]:
            send(connection, (store, ranks, inspect.getsourcefile(function), function.__qualname__, args))
        answers = [receive(connection) for connection in self.connections[:ranks]]
        failures = [(rank, text) for rank, (succeeded, text) in enumerate(answers) if not succeeded]
        if failures:
            raise RankError("\n".join(f"rank {rank} of {ranks}:\n{text}" for rank, text in failures))
        return [result for _, result in answers]

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        self.process.wait(timeout=30)
        self.folder.cleanup()


_pools: dict[str, _Pool] = {}


def _pool(release: str) -> _Pool:
    if release not in _pools:
        _pools[release] = _Pool(release)
    return _pools[release]


def shut_down() -> None:
    """End every worker process."""
    while _pools:
        _pools.popitem()[1].close()


def _environment(release: str) -> dict[str, str]:
    """The older release lies beside the environment and is put before it on the path."""
    paths = [str(_HERE.parent), os.environ.get("PYTHONPATH", "")]
    if release != INSTALLED:
        paths.insert(0, str(Path(sys.prefix) / f"mcore-{release}"))
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "PYTHONWARNINGS": "ignore",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _installed_release() -> str:
    from megatron.core import __version__

    # Inside a git checkout Megatron adds the commit of whatever repository it lies in: 0.18.2+1a2b3c4.
    return str(__version__).partition("+")[0]


def send(connection: "Connection[Any, Any]", message: Any) -> None:
    """Plain pickle: tensors travel by value, not as handles to shared memory."""
    connection.send_bytes(pickle.dumps(message))


def receive(connection: "Connection[Any, Any]") -> Any:
    """The other end of `send`."""
    return pickle.loads(connection.recv_bytes())


def describe_failure() -> str:
    """The current exception as text, for the trip from a rank to the test."""
    return traceback.format_exc()
