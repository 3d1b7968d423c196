"""Run settings on their ranks, each a process of its own, over gloo (CPU) or NCCL (GPU)."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mcore_unpatch.verify.measure import Row
from mcore_unpatch.verify.models import Setting

Work = Callable[[Setting], list[Row]]
LIMIT = 300.0  # seconds for one setting


def run(settings: Sequence[Setting], work: Work) -> Iterator[list[Row]]:
    """The rows of each setting, the worst of all ranks; all settings have the layout of the first.

    What fails becomes a row that says so. A failure on one of several ranks ends the rest, which would wait for it.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Megatron's, about Apex and Transformer Engine
        import megatron.core.models.gpt.gpt_model  # noqa: F401 - for the ranks

    # Where a rank can be forked it need not import torch and Megatron once more, which takes longer than its work.
    forks = settings[0].device == "cpu" and sys.platform == "linux"
    context: Any = torch.multiprocessing.get_context("fork" if forks else "spawn")
    size = settings[0].tp * settings[0].cp
    with tempfile.TemporaryDirectory(prefix="unpatch-verify-") as folder:
        meeting = str(Path(folder) / "meeting")
        queues = [context.SimpleQueue() for _ in range(size)]
        ranks = [
            context.Process(target=_rank, args=(number, size, meeting, settings, work, queues[number]), daemon=True)
            for number in range(size)
        ]
        for rank in ranks:
            rank.start()
        try:
            failed = ""
            for setting in settings:
                rows = [Row(setting.name, "run", note=failed)] if failed else _collected(setting, ranks, queues)
                if size > 1 and rows[0].quantity == "run":
                    failed = "not run, because the configuration before it failed"
                yield rows
        finally:
            for rank in ranks:
                rank.terminate()
                rank.join()


def _collected(setting: Setting, ranks: list[Any], queues: list[Any]) -> list[Row]:
    until = time.monotonic() + LIMIT
    by_quantity: dict[str, list[Row]] = {}
    for rank, queue in zip(ranks, queues, strict=True):
        while queue.empty():
            if time.monotonic() > until:
                return [Row(setting.name, "run", note=f"not done after {LIMIT:.0f} s")]
            if not rank.is_alive() and queue.empty():
                return [Row(setting.name, "run", note=f"a rank ended with exit code {rank.exitcode}")]
            time.sleep(0.02)
        answer = queue.get()
        if isinstance(answer, str):
            return [Row(setting.name, "run", note=answer)]
        for row in answer:
            by_quantity.setdefault(row.quantity, []).append(row)
    return [max(rows, key=_excess) for rows in by_quantity.values()]


def _excess(row: Row) -> float:
    """How far a row is beyond its tolerance; what is no number, or was not measured, is furthest."""
    ratio = row.error / row.tolerance if row.tolerance else float("inf")
    return ratio if ratio == ratio else float("inf")


def _rank(number: int, size: int, meeting: str, settings: Sequence[Setting], work: Work, answers: Any) -> None:
    import logging

    import torch

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # gloo talks there
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))
    first = settings[0]
    try:
        from megatron.core import parallel_state

        if first.device == "cuda":
            torch.cuda.set_device(number)
        backend = "nccl" if first.device == "cuda" else "gloo"
        torch.distributed.init_process_group(backend, init_method=f"file://{meeting}", rank=number, world_size=size)
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=first.tp, context_parallel_size=first.cp)
    except BaseException as error:
        answers.put(f"{type(error).__name__}: {error}")
        return
    for setting in settings:
        try:
            answers.put(work(setting))
        except BaseException as error:
            answers.put(f"{type(error).__name__}: {error}")
    time.sleep(LIMIT)  # until the others are done: the parent ends this process
