"""Matrix products of 16-bit operands that are added up and kept in float32."""

import torch
from torch import Tensor


def multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
    """`out = a @ b`, rounded once to the dtype of `out`."""
    if a.dtype == out.dtype:
        torch.mm(a, b, out=out)
    elif _widens(out):
        torch.mm(a, b, out_dtype=out.dtype, out=out)
    else:
        out.copy_(_wide(a, b))


def multiply_add(a: Tensor, b: Tensor, out: Tensor) -> None:
    """`out += a @ b` without a copy of the product."""
    if a.dtype == out.dtype:
        out.addmm_(a, b)
    elif _widens(out):
        torch.addmm(out, a, b, out_dtype=out.dtype, out=out)
    else:
        out.add_(_wide(a, b))


def _widens(out: Tensor) -> bool:
    return out.is_cuda and torch.version.hip is None


def _wide(a: Tensor, b: Tensor) -> Tensor:
    """The product in float32 where torch cannot widen: on AMD cards, and on a CPU for Triton's interpreter."""
    return a.float() @ b.float()
