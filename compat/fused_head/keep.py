"""How many bytes of the forward's logits may be kept for the backward."""

import os
from typing import Literal

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.checks import check_count

VARIABLE = "MCORE_UNPATCH_KEEP_BYTES"
# Of the whole card, for what is still to come before the backward: other layers, other processes, fragments.
_MARGIN = 1 / 16


def bytes_to_keep(asked: int | Literal["auto"] | None, hidden: Tensor, weight: Tensor) -> int:
    """The bytes asked for; "auto" is what is free now, minus a margin and what the backward itself needs."""
    if asked is None:
        asked = _from_environment()
    if asked != "auto":
        check_count("keep_bytes", asked, 0)
        return asked
    if hidden.device.type != "cuda":
        return 0
    if torch.cuda.is_current_stream_capturing():
        raise ValueError(
            "keep_bytes='auto' reads how much memory is free, which a CUDA graph cannot replay; pass a number of bytes."
        )
    free, whole = torch.cuda.mem_get_info(hidden.device)
    unused = torch.cuda.memory_reserved(hidden.device) - torch.cuda.memory_allocated(hidden.device)
    gradients = weight.nbytes + hidden.numel() * (4 + hidden.itemsize)  # of the weight, and twice of hidden
    return max(0, int(free + unused - whole * _MARGIN - gradients))


def _from_environment() -> int | Literal["auto"]:
    value = os.environ.get(VARIABLE, "0")
    if value == "auto":
        return "auto"
    if not value.isdecimal():
        raise ValueError(f"the environment variable {VARIABLE}: expected 'auto' or a number of bytes, got {value!r}")
    return int(value)
