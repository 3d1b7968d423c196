"""The nursery of one megatron-core release and the ranks it forks: each runs jobs, one after another."""

import faulthandler
import gc
import importlib.util
import logging
import os
import pickle
import signal
import sys
import time
import traceback
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection, Listener
from multiprocessing.reduction import recv_handle
from pathlib import Path
from types import ModuleType
from typing import Any

import megatron.core
import megatron.core.distributed
import megatron.core.models.gpt.gpt_model
import megatron.core.models.hybrid.hybrid_model
import megatron.core.pipeline_parallel
import torch
from megatron.core.transformer.moe.moe_logging import destroy_moe_metrics_tracker
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, MTPLossLoggingHelper

from harness.cpu import on_the_cpu
from harness.margins import conditions
from harness.pool import Failure, Job, send
from harness.worlds import enter_world, forget_layout


@cache
def load(path: str) -> ModuleType:
    """Import the file at `path` under a name of its own."""
    name = "job_" + path.strip("/").replace("/", "_").removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def work(rank: int, job: Job) -> Any:
    """Run one job as `rank`, and leave nothing of it behind but the world."""
    torch.manual_seed(1234)
    enter_world(job.store, rank, job.world)
    os.environ["PYTEST_CURRENT_TEST"] = job.test
    with on_the_cpu(), conditions():
        result = getattr(load(job.path), job.name)(*job.args)
    MTPLossLoggingHelper.tracker.clear()
    destroy_moe_metrics_tracker()
    MoEAuxLossAutoScaler.main_loss_backward_scale = None
    MTPLossAutoScaler.set_loss_scale(torch.tensor(1.0))
    forget_layout()
    return result


def serve(connection: "Connection[Any, Any]", rank: int, trace: str) -> None:
    """Answer jobs until the test process goes away. After a failure none comes: the pool ends this process."""
    faulthandler.register(signal.SIGUSR1, Path(trace).open("w"))  # noqa: SIM115
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    while True:
        try:
            message = connection.recv_bytes()
        except EOFError:
            return
        try:
            send(connection, work(rank, pickle.loads(message)))
        except BaseException:
            # The world stays as it is: closing it first would let the others fail, and answer, before this rank.
            send(connection, Failure(time.monotonic(), traceback.format_exc()))


def keep_nurseries(address: str) -> None:
    """Fork a nursery for everybody who connects: torch and Megatron are imported once for all of them."""
    ours = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a nursery that ends
    gc.freeze()
    with Listener(address) as listener:
        while True:
            pool = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, ours)
                os.setsid()  # a nursery's end is not that of the others
                listener.close()
                nurse(pool)
                os._exit(0)
            pool.close()


def nurse(pool: "Connection[Any, Any]") -> None:
    """Fork a rank for every place in the world that the pool names; tell how a rank ended for every pid."""
    pool.send(megatron.core.__version__.partition("+")[0])  # in a git checkout Megatron adds a commit: 0.18.2+1a2b3c4
    gc.freeze()  # no rank need look through torch and Megatron for garbage, nor copy their pages by doing so
    ranks: set[int] = set()
    while True:
        try:
            message = pool.recv()
        except EOFError:
            break
        if isinstance(message, int):
            ranks.remove(message)
            _, status = os.waitpid(message, 0)
            code = os.waitstatus_to_exitcode(status)
            pool.send(f"exit code {code}" if code >= 0 else signal.Signals(-code).name)
            continue
        # The end of a pipe is held by its rank alone: whoever waits at the other end learns when that rank is gone.
        end = recv_handle(pool)
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)  # what the rank starts, Megatron's writers of checkpoints above all, is ended with it
            pool.close()
            serve(Connection(end), *message)
            os._exit(0)
        os.close(end)
        with suppress(OSError):  # the rank did it already; here too, so that it is done before the pool knows the rank
            os.setpgid(pid, pid)
        ranks.add(pid)
        pool.send(pid)
    for pid in ranks:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
