"""What the tests on a GPU share: one rank, one small case."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch.distributed import ProcessGroup

from harness.models import Case

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CASE = Case(hidden=64, vocab=512, batch=2, sequence=32)


@contextmanager
def one_rank(folder: Path) -> Iterator[ProcessGroup]:
    """A world of one rank on the GPU."""
    torch.distributed.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
    yield torch.distributed.group.WORLD
    torch.distributed.destroy_process_group()
