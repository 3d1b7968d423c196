"""How much room the tolerances leave: `make margins` (tests/run_margins.py) asks, and without it nothing happens here.

Each comparison writes down its error over what is allowed, and the numbers are computed as another machine might.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

FILE = "MCORE_UNPATCH_MARGINS"  # where comparisons are written down
AS = "MCORE_UNPATCH_MARGINS_AS"  # how the numbers are computed
CONDITIONS = ("one thread", "two threads", "without MKL-DNN", "shuffled sums")


def note(error: float, allowed: float) -> None:
    """Write a comparison down, if somebody asks."""
    if file := os.environ.get(FILE):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        line = f"{error / allowed if allowed else float(error > 0)}\t{error}\t{allowed}\t{test!r}\n"
        with open(file, "a") as out:  # noqa: PTH123
            out.write(line)


@contextmanager
def conditions() -> Iterator[None]:
    """Compute as `AS` says."""
    asked, threads = os.environ.get(AS), torch.get_num_threads()
    with ExitStack() as stack:
        if asked == "two threads":
            torch.set_num_threads(2)
            stack.callback(torch.set_num_threads, threads)
        if asked == "without MKL-DNN":
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        if asked == "shuffled sums":
            stack.enter_context(_Shuffled())
        yield


class _Shuffled(TorchDispatchMode):
    """Products and sums add up in another order: what is summed over is permuted first, rows and vocabulary alike."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        operator, arguments = str(func).removeprefix("aten.").partition(".")[0], list(args)
        if operator in ("_softmax", "_log_softmax"):
            order, dim = _order(arguments[0].shape[arguments[1]]), arguments[1]
            arguments[0] = arguments[0].index_select(dim, order)
            return func(*arguments, **(kwargs or {})).index_select(dim, order.argsort())
        return func(*_permuted(operator, arguments), **(kwargs or {}))


def _permuted(operator: str, args: list[Any]) -> list[Any]:
    if operator in ("mm", "bmm", "addmm", "baddbmm", "addmm_", "mv", "addmv"):
        left = len(args) - 2 if operator in ("mm", "bmm", "mv") else 1
        length = args[left].shape[-1]
        args[left] = args[left].index_select(-1, _order(length))
        right = args[left + 1]
        args[left + 1] = right.index_select(0 if right.dim() == 1 else -2, _order(length))
    elif operator in ("sum", "mean", "logsumexp") and args[0].is_floating_point():
        args[0] = _shuffled_dim(args)
    return args


def _shuffled_dim(args: Sequence[Any]) -> Tensor:
    tensor: Tensor = args[0]
    asked = args[1] if len(args) > 1 else None
    over = range(tensor.dim()) if not asked else [asked] if isinstance(asked, int) else asked
    for dim in over:
        tensor = tensor.index_select(dim, _order(tensor.shape[dim]))
    return tensor


@cache
def _order(length: int) -> Tensor:
    """The same for the same length, so that the same sum has the same result."""
    return torch.randperm(length, generator=torch.Generator().manual_seed(length))
