"""What a call really costs: multiplications in matrix products, bytes allocated, messages sent."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from torch.multiprocessing.reductions import StorageWeakRef
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode


class Watcher(TorchDispatchMode):
    """Sees every operation of torch by its name, arguments and result."""

    def see(self, name: str, args: Sequence[Any], result: Any) -> None:
        raise NotImplementedError

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.see(str(func), args, result)
        return result


class ProductCounter(Watcher):
    """Counts the multiplications of every matrix product under it."""

    multiplications = 0

    def see(self, name: str, args: Sequence[Any], result: Any) -> None:
        if name.startswith(("aten.mm.", "aten.addmm")):
            left, right = args[:2] if name.startswith("aten.mm.") else args[1:3]
            self.multiplications += left.shape[0] * left.shape[1] * right.shape[1]


class OrderOfWork(Watcher):
    """Matrix products and collectives of torch.distributed in the order in which they were begun."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def see(self, name: str, args: Sequence[Any], result: Any) -> None:
        if name.startswith(("aten.mm.", "aten.addmm")):
            self.names.append("product")
        elif name.startswith("c10d"):
            self.names.append(name.split(".")[1])

    def collectives(self) -> list[str]:
        """Without the products."""
        return [name for name in self.names if name != "product"]


class GatheredRows(Watcher):
    """Every copy of gathered rows, and the most of them that lived at once."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[StorageWeakRef] = []
        self.most_at_once = 0

    def __enter__(self) -> Self:
        gc.freeze()  # what was there before, all of torch, need not be searched again at every copy
        super().__enter__()
        return self

    def __exit__(self, *args: object) -> None:
        super().__exit__(*args)
        gc.unfreeze()

    def see(self, name: str, args: Sequence[Any], result: Any) -> None:
        if name.startswith("aten.index_select") and result.dim() == 2:
            gc.collect()  # Triton's interpreter leaves its arguments in cycles
            self.copies.append(StorageWeakRef(result.untyped_storage()))
            self.most_at_once = max(self.most_at_once, sum(not copy.expired() for copy in self.copies))


class PeakMemory:
    """The most bytes that torch held at once beyond those it held at the start."""

    peak = 0


@contextmanager
def peak_memory() -> Iterator[PeakMemory]:
    """Follow every allocation of torch's CPU allocator, those inside its kernels included."""
    result = PeakMemory()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        yield result
    assert run.profiler is not None
    assert run.profiler.kineto_results is not None
    held = 0
    events = [event for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert events
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        result.peak = max(result.peak, held)
