"""One process per rank: waits for jobs, runs each in a fresh gloo world, answers with the result or the traceback."""

import importlib.util
import logging
import os
import sys
from datetime import timedelta
from functools import cache
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import megatron.core.distributed
import megatron.core.models.gpt.gpt_model
import megatron.core.models.hybrid.hybrid_model
import megatron.core.pipeline_parallel  # noqa: F401
import torch
from megatron.core import parallel_state
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, MTPLossLoggingHelper

from harness.cpu import on_the_cpu
from harness.pool import describe_failure, receive, send


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


def work(rank: int, job: tuple[str, int, str, str, tuple[Any, ...]]) -> tuple[bool, Any]:
    """Run one job as `rank`, and leave nothing of its world behind."""
    store, world, path, name, args = job
    torch.manual_seed(1234)
    try:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=60)
        )
        with on_the_cpu():
            return True, getattr(load(path), name)(*args)
    except BaseException:
        return False, describe_failure()
    finally:
        MTPLossLoggingHelper.tracker.clear()
        MTPLossAutoScaler.set_loss_scale(torch.tensor(1.0))
        if parallel_state.model_parallel_is_initialized():
            parallel_state.destroy_model_parallel()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def serve(connection: "Connection[Any, Any]", rank: int) -> None:
    """Answer jobs until the test process goes away."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    while True:
        try:
            job = receive(connection)
        except EOFError:
            return
        send(connection, work(rank, job))


if __name__ == "__main__":
    connections: "list[Connection[Any, Any]]" = [Connection(int(end)) for end in sys.argv[1:]]
    for number, mine in enumerate(connections):
        if os.fork() == 0:
            # A pipe held by one process alone: whoever waits at its other end learns when that process is gone.
            for other in connections:
                if other is not mine:
                    other.close()
            serve(mine, number)
            os._exit(0)
    for connection in connections:
        connection.close()
    for _ in connections:
        os.wait()
