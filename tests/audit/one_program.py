"""Run by itself: a program that prints nothing; the value that it leaves in `said` goes into a file."""

import json
import sys
import tempfile
from pathlib import Path

import torch
from megatron.core import parallel_state

from mcore_unpatch import audit  # noqa: F401 - for the programs, as what follows
from mcore_unpatch.verify.models import Setting, batch, build  # noqa: F401


def world(**sizes: int) -> None:
    name = "file://" + tempfile.mktemp()
    torch.distributed.init_process_group("gloo", init_method=name, rank=0, world_size=1)
    parallel_state.initialize_model_parallel(**sizes)


if __name__ == "__main__":
    name, code, answer, *paths = sys.argv[1:]
    sys.path[:1] = paths
    scope = dict(globals(), said=None)
    exec(compile(Path(code).read_text(), name, "exec"), scope)
    Path(answer).write_text(json.dumps(scope["said"]))
