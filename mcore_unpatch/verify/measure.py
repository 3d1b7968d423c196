"""Settings, measured on ranks of their own: the hook's numbers beside Megatron's default path, and beside float64.

The truth is the default path in float64. Rounding alone may part two correct computations by the epsilon of the dtype
times the root of the length of its sums; what the default path itself errs is allowed twice on top.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mcore_unpatch.children import can_be_safe, safe_path
from mcore_unpatch.errors import UsageError
from mcore_unpatch.verify.models import Setting, batch, build

TEMPERATURE = 1.3
_FLOOR = 1e-2  # no gradient is measured against less than this part of the largest one
_CHAIN = 16  # sums from the tokens to a gradient, each as long as the model is wide
Numbers = dict[str, Tensor]


@dataclass(frozen=True)
class Row:
    """One line of the table. `error` is the largest over all tensors of the quantity, relative to their size."""

    setting: str
    quantity: str
    error: float = 0.0
    tolerance: float = 0.0
    note: str = ""  # why it was not measured

    @property
    def verdict(self) -> str:
        """Whether it is within the tolerance; a result that is not a number is beyond it."""
        return "not run" if self.note else "holds" if self.error <= self.tolerance else "FAILS"


def measured(setting: Setting) -> list[Row]:
    """The rows of a setting, this rank's part of them."""
    from megatron.core import parallel_state

    inputs = batch(setting, parallel_state.get_context_parallel_rank())
    model = build(setting)
    ours = through_the_hook(model, inputs)
    plain = default_path(model, inputs)
    twin = build(setting, torch.float64)
    twin.load_state_dict(model.state_dict())
    truth = default_path(twin, inputs)
    width = max(model.config.hidden_size, setting.vocab)
    return [
        _row(setting, quantity, ours, plain, truth, tolerance(setting.torch_dtype, _CHAIN * width))
        for quantity in ("log-probs", "entropy", "gradients")
    ]


def tolerance(dtype: torch.dtype, sums: int) -> float:
    """What rounding alone may do to a result through sums of this length, relative to its size."""
    own = torch.finfo(torch.float32).eps * (8 + math.sqrt(sums))
    return torch.finfo(dtype).eps + own if dtype.itemsize == 2 else own


def through_the_hook(model: Any, inputs: dict[str, Any]) -> Numbers:
    """Log-probs, entropy and gradients of our operator at Megatron's hook."""
    from mcore_unpatch.compat import LogProbsAndEntropy, call_with_processor

    model.zero_grad()
    out = call_with_processor(model, LogProbsAndEntropy(temperature=TEMPERATURE), **inputs)
    torch.autograd.backward(_loss(out.log_probs, out.entropy))
    return {"log-probs": out.log_probs.detach(), "entropy": out.entropy.detach(), **_gradients(model)}


def default_path(model: Any, inputs: dict[str, Any]) -> Numbers:
    """The same from the logits that the model makes without the hook, by log-softmax in float64."""
    from megatron.core import parallel_state

    model.zero_grad()
    caught: list[Tensor] = []
    # A copy: Megatron's cross-entropy turns float32 logits into probabilities in place.
    handle = model.output_layer.register_forward_hook(lambda layer, args, output: caught.append(output[0].clone()))
    try:
        model(**inputs)
    finally:
        handle.remove()
    logits = model._scale_logits(caught[-1])  # MTP layers come first
    group = parallel_state.get_tensor_model_parallel_group()
    parts = [torch.empty_like(logits) for _ in range(group.size())]
    torch.distributed.all_gather(parts, logits.detach().contiguous(), group=group)
    whole = torch.cat(parts, -1).transpose(0, 1).double().requires_grad_()  # [b, s, vocab]
    log_softmax = (whole / TEMPERATURE).log_softmax(-1)
    log_probs = log_softmax.gather(-1, inputs["labels"][..., None]).squeeze(-1)
    entropy = -(log_softmax.exp() * log_softmax).sum(-1)
    (gradient,) = torch.autograd.grad(_loss(log_probs, entropy), whole)
    shard = gradient.chunk(group.size(), -1)[group.rank()].transpose(0, 1)
    torch.autograd.backward(logits, shard.to(logits.dtype))
    return {"log-probs": log_probs.detach(), "entropy": entropy.detach(), **_gradients(model)}


def _loss(log_probs: Tensor, entropy: Tensor) -> Tensor:
    """Weights of every position and both results, so that all of them matter to the gradient."""
    generator = torch.Generator().manual_seed(3)
    a, b = torch.randn(2, *log_probs.shape, generator=generator).to(log_probs.device)
    loss: Tensor = (a.to(log_probs.dtype) * log_probs + 0.3 * b.to(entropy.dtype) * entropy).sum() / log_probs.numel()
    return loss


def _gradients(model: Any) -> Numbers:
    return {
        f"gradients of {name}": torch.zeros_like(p) if p.grad is None else p.grad.detach().clone()
        for name, p in model.named_parameters()
    }


def _row(setting: Setting, quantity: str, ours: Numbers, plain: Numbers, truth: Numbers, own: float) -> Row:
    names = [name for name in truth if name.startswith(quantity)]
    floor = _FLOOR * max(truth[name].double().norm().item() for name in names)
    worst = Row(setting.name, quantity, 0.0, own)
    for name in names:
        error = distance(ours[name], truth[name], floor)
        allowed = 2 * distance(plain[name], truth[name], floor) + own
        if not error / allowed <= worst.error / worst.tolerance:
            worst = Row(setting.name, quantity, error, allowed)
    return worst


def distance(value: Tensor, truth: Tensor, floor: float = 0.0) -> float:
    """The norm of the difference, relative to the truth's."""
    size = max(truth.double().norm().item(), floor)
    return float((value.double() - truth.double()).norm().item() / (size or 1.0))


Work = Callable[[Setting], list[Row]]
LIMIT = 300.0  # seconds for one setting


def run(settings: Sequence[Setting], work: Work) -> Iterator[list[Row]]:
    """The rows of each setting, the worst of all ranks; all settings have the layout of the first.

    What fails becomes a row that says so. A failure on one of several ranks ends the rest, which would wait for it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Megatron's, about Apex and Transformer Engine
        import megatron.core.models.gpt.gpt_model  # noqa: F401 - for the ranks

    # Where a rank can be forked it need not import torch and Megatron once more, which takes longer than its work.
    forks = settings[0].device == "cpu" and sys.platform == "linux"
    if not forks and not can_be_safe():
        raise UsageError("Python runs with -E, and new processes would look for modules in this folder: add -P")
    context: Any = torch.multiprocessing.get_context("fork" if forks else "spawn")
    size = settings[0].tp * settings[0].cp
    with tempfile.TemporaryDirectory(prefix="unpatch-verify-") as folder:
        meeting = str(Path(folder) / "meeting")
        with safe_path():
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

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # gloo talks there
    torch.set_num_threads(max(1, torch.get_num_threads() // size))
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
