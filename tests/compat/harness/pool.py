"""Worker processes, one set per megatron-core release and size of the world, that stay alive between jobs.

Importing torch and megatron-core takes seconds, so each release is imported once, in a nursery that forks the ranks.
A job names a function by its file and its name; every rank runs it. Jobs of as many ranks share a gloo world: a new one
costs more than most jobs. A job ends on all ranks with the first failure, the first death, or its limit. Its ranks
are then killed, and the next job of as many gets new ones.
"""

import inspect
import itertools
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Client, Connection, wait
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any

from limits import Countdown, patience

INSTALLED = "0.19.2"
# An unpacked Megatron-LM (`git archive`, a checkout), for the release that is to come: downloaded by nobody.
MAIN = "main"
MAIN_FOLDER = os.environ.get("MCORE_UNPATCH_MEGATRON_MAIN", "")
RELEASES = ("0.18.2", INSTALLED, *([MAIN] if MAIN_FOLDER else []))
# In seconds of an idle machine, like every limit here; the slowest jobs take a few.
LIMIT = 60.0
_START_LIMIT = 300.0  # importing torch and megatron-core from a cold disk
_GRACE = 1.0  # how long the others may still answer once a rank has failed
_HERE = Path(__file__).parent
# A folder of sockets: nurseries of somebody who starts many processes of tests (`share_nurseries`).
_SHARED = "MCORE_UNPATCH_NURSERIES"


class RankError(AssertionError):
    """A job failed; the message holds the traceback of the rank that failed first."""


@dataclass(frozen=True)
class Job:
    """What every rank is told: the size of the world and where it meets, and the function to call in it."""

    store: str
    world: int
    path: str
    name: str
    args: tuple[Any, ...]
    limit: float
    test: str  # which asks for it


@dataclass(frozen=True)
class Failure:
    """A rank's answer in place of a result. `when` is the machine's clock, the same for all ranks."""

    when: float
    text: str


def run_on_ranks(release: str, ranks: int, function: Callable[..., Any], *args: Any, limit: float = LIMIT) -> list[Any]:
    """Run `function(*args)` on `ranks` gloo ranks with megatron-core `release`; return one result per rank.

    `limit`: after how many seconds of an idle machine the job is given up.
    """
    if release not in _pools or _pools[release].is_gone():
        _pools[release] = _Pool(release)
    return _pools[release].run(ranks, function, args, limit)


def forget_ranks(release: str, ranks: int) -> None:
    """The next job of as many ranks runs on new ones."""
    if release in _pools:
        _pools[release]._end_world(ranks)


class _Rank:
    """One worker process, seen from the test."""

    def __init__(self, pid: int, connection: "Connection[Any, Any]", trace: Path) -> None:
        self.pid, self.connection, self.trace = pid, connection, trace

    def where(self) -> str:
        """The stack it stands in now: `faulthandler` writes it, whatever the rank is waiting for."""
        os.kill(self.pid, signal.SIGUSR1)
        end = time.monotonic() + patience(2)
        while not (text := self.trace.read_text()) and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.05)
        return self.trace.read_text() or text or "no answer to a signal"


@dataclass
class _World:
    """The ranks of the jobs of one size, and the file at which they met."""

    store: Path
    ranks: list[_Rank] = field(default_factory=list)


def _late(job: Job, ranks: list[_Rank], waiting: list[int]) -> str:
    places = "\n".join(f"rank {number} of {job.world} stands here:\n{ranks[number].where()}" for number in waiting)
    return f"{job.name} did not end within {job.limit:g} s; say limit= where it needs more.\n{places}"


class _Pool:
    def __init__(self, release: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="ranks-")
        self.numbers = itertools.count()
        self.worlds: dict[int, _World] = {}  # by their size
        self.process: subprocess.Popen[bytes] | None = None
        if folder := os.environ.get(_SHARED):
            self.nursery = Client(str(Path(folder, release)))
        else:
            self.nursery, theirs = Pipe()
            self.process = _start(release, f"nurse(worker.Connection({theirs.fileno()}))", [theirs.fileno()])
            theirs.close()
        found = self._hear(_START_LIMIT)
        assert release in (found, MAIN), f"the workers for megatron-core {release} imported {found}"

    def is_gone(self) -> bool:
        """The nursery speaks only when it is asked: what can be read without a question is the end of its pipe."""
        return self.nursery.closed or self.nursery.poll()

    def run(self, ranks: int, function: Callable[..., Any], args: tuple[Any, ...], limit: float) -> list[Any]:
        path = inspect.getsourcefile(function)
        assert path is not None
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        try:
            world = self.worlds.setdefault(ranks, _World(self._new_file("store")))
            while len(world.ranks) < ranks:
                world.ranks.append(self._bear_a_rank(len(world.ranks)))
            job = Job(str(world.store), ranks, path, function.__qualname__, args, limit, test)
            for rank in world.ranks:
                with suppress(OSError):  # a rank that died since its last job is found where its answer is awaited
                    send(rank.connection, job)
            return self._answers(job, world.ranks)
        except BaseException:
            self._end_world(ranks)
            raise

    def _answers(self, job: Job, ranks: list[_Rank]) -> list[Any]:
        waiting = {rank.connection: number for number, rank in enumerate(ranks)}
        answers: dict[int, Any] = {}
        failures: dict[int, Failure] = {}
        countdown = Countdown(job.limit)
        while waiting:
            ready = wait(waiting, countdown.wait())
            if not ready and countdown.left() > 0:
                continue
            if not ready and not failures:
                raise RankError(_late(job, ranks, sorted(waiting.values())))
            if not ready:
                break
            for connection in ready:
                number = waiting.pop(connection)  # type: ignore[arg-type]
                try:
                    answers[number] = receive(connection)  # type: ignore[arg-type]
                except (EOFError, OSError):
                    # Whatever the others say of the connection they lost, this came first.
                    answers[number] = Failure(0.0, "")
                if isinstance(answers[number], Failure):
                    failures[number] = answers[number]
                    countdown = Countdown(min(countdown.left(), _GRACE))
        if failures:
            first = min(failures, key=lambda number: failures[number].when)
            deaths = self._end_world(job.world)
            text = failures[first].text or f"died without a traceback ({deaths.get(first, 'and its nursery with it')})"
            raise RankError(f"rank {first} of {job.world}: {text}")
        return [answers[number] for number in range(job.world)]

    def _new_file(self, kind: str) -> Path:
        return Path(self.folder.name) / f"{kind}-{next(self.numbers)}"

    def _bear_a_rank(self, number: int) -> _Rank:
        trace = self._new_file("trace")
        ours, theirs = Pipe()
        pid = self._ask((number, str(trace)), theirs.fileno())
        theirs.close()
        return _Rank(pid, ours, trace)

    def _end_world(self, size: int) -> dict[int, str]:
        """Kill its ranks; how each ended, which for one that was dead already is its own way."""
        deaths: dict[int, str] = {}
        ranks = self.worlds.pop(size).ranks if size in self.worlds else []
        with suppress(OSError, RankError):  # the nursery may be gone as well; `run_on_ranks` then makes a new one
            while ranks:
                rank = ranks.pop()
                rank.connection.close()
                os.killpg(rank.pid, signal.SIGKILL)
                deaths[len(ranks)] = self._ask(rank.pid)
        return deaths

    def _ask(self, message: Any, handle: int | None = None) -> Any:
        try:
            self.nursery.send(message)
            if handle is not None:
                send_handle(self.nursery, handle, 0)  # the pid is for Windows
            return self._hear(LIMIT)
        except (EOFError, OSError) as error:
            self.nursery.close()
            if self.process:
                self.process.kill()
                self.process.wait()
            raise RankError(f"the process that starts the ranks is gone: {error}") from error

    def _hear(self, limit: float) -> Any:
        if not self.nursery.poll(patience(limit)):
            raise RankError(f"the process that starts the ranks has not answered for {limit:g} s")
        return self.nursery.recv()

    def close(self) -> None:
        for world in self.worlds.values():
            for rank in world.ranks:
                rank.connection.close()
        self.nursery.close()
        if self.process:
            self.process.wait(timeout=patience(30))
        self.folder.cleanup()


_pools: dict[str, _Pool] = {}


def shut_down() -> None:
    """End every worker process."""
    while _pools:
        _pools.popitem()[1].close()


@contextmanager
def share_nurseries() -> Iterator[None]:
    """In the block, all processes of tests that are started have their ranks from the same nurseries."""
    with tempfile.TemporaryDirectory(prefix="nurseries-") as folder:
        started = [_start(release, f"keep_nurseries({str(Path(folder, release))!r})") for release in RELEASES]
        try:
            countdown = Countdown(_START_LIMIT)
            while not all(Path(folder, release).exists() for release in RELEASES):
                assert countdown.left() > 0, f"megatron-core has not been imported after {_START_LIMIT:g} s"
                time.sleep(0.1)
            os.environ[_SHARED] = folder
            yield
        finally:
            os.environ.pop(_SHARED, None)
            for process in started:
                process.kill()
                process.wait()


def _start(release: str, what: str, descriptors: Sequence[int] = ()) -> "subprocess.Popen[bytes]":
    """A process with megatron-core `release` that calls a function of `worker`."""
    return subprocess.Popen(
        # Not as a script: what the ranks start by `spawn` would import the script, and Megatron, once more.
        [sys.executable, "-P", "-c", f"from harness import worker; worker.{what}"],
        env=_environment(release),
        stdout=subprocess.DEVNULL,
        pass_fds=descriptors,
        start_new_session=True,  # Ctrl-C is for the tests; the workers go when their pipes close
    )


def _environment(release: str) -> dict[str, str]:
    """The older release lies beside the environment and is put before it on the path."""
    paths = [str(_HERE.parent), str(_HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    if release == MAIN:
        paths.insert(0, MAIN_FOLDER)
    elif release != INSTALLED:
        paths.insert(0, str(Path(sys.prefix) / f"mcore-{release}"))
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "CUDA_VISIBLE_DEVICES": "",  # what is forked cannot use one
        "PYTHONWARNINGS": "ignore",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def send(connection: "Connection[Any, Any]", message: Any) -> None:
    """Plain pickle: tensors travel by value, not as handles to shared memory."""
    connection.send_bytes(pickle.dumps(message))


def receive(connection: "Connection[Any, Any]") -> Any:
    """The other end of `send`."""
    return pickle.loads(connection.recv_bytes())
