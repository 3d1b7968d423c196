"""The arguments of a pass over the vocabulary, each once, and the errors for a wrong one; nothing waits for a GPU."""

import math
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, distributed_c10d
from torch.distributed.tensor import DTensor

DEFAULT_TILE_BYTES = {"cpu": 16 << 20, "cuda": 512 << 20}  # cache-friendly on a CPU, wide on a GPU
_NO_IDS = (torch.bool, torch.complex64)
_MULTIPLIED = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def math_dtype(weight: Tensor) -> torch.dtype:
    """The dtype of softmax, sums and outputs: float32, or float64 for a float64 weight."""
    return torch.float64 if weight.dtype == torch.float64 else torch.float32


def waiting_is_free(tensor: Tensor) -> bool:
    """Whether values can be read at no cost; on an accelerator, reading waits for all queued work."""
    return tensor.is_cpu


def _wrong(kind: type[Exception], argument: str, expected: str, got: object) -> Exception:
    return kind(f"{argument}: expected {expected}, got {got}")


def check_tensors(hidden: Any, weight: Any, temperature: Any, **rows: Any) -> None:
    """Shapes, dtypes and devices: of hidden states and weight, and of the arguments that have a row for each token."""
    given = {name: tensor for name, tensor in rows.items() if tensor is not None}
    for name, tensor in ({"hidden": hidden, "weight": weight} | given).items():
        if not isinstance(tensor, Tensor):
            raise _wrong(TypeError, name, "a tensor", type(tensor).__name__)
        if isinstance(tensor, DTensor):
            way = "a DTensor; pass its to_local(), and tp_group=weight.device_mesh.get_group() if these ranks have the "
            way += "same tokens; if fully_shard made it, call from the forward that it wrapped, or unshard() before"
            raise _wrong(TypeError, name, "a plain tensor", way)
        if name in ("hidden", "weight") and tensor.dtype not in _MULTIPLIED:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in _MULTIPLIED)
            narrow = tensor.dtype.is_floating_point and tensor.itemsize == 1
            way = f"; multiply by its scale in bfloat16 and pass that: {name}.to(torch.bfloat16) * scale"
            raise _wrong(TypeError, name, f"one of {known}", f"{tensor.dtype}{way if narrow else ''}")
    if weight.dim() != 2:
        raise _wrong(ValueError, "weight", "shape [vocab / tp, h]", list(weight.shape))
    if hidden.dim() < 1 or hidden.shape[-1] != weight.shape[1] or weight.shape[1] == 0:
        raise _wrong(ValueError, "hidden", f"shape [..., {weight.shape[1]}] to match weight", list(hidden.shape))
    shape = hidden.shape[:-1]
    for name, tensor in given.items():
        several = name == "token_ids"
        if tensor.shape[: len(shape)] != shape or tensor.dim() != len(shape) + several:
            text = f"shape {list(shape)}{' + [k]' * several} to match hidden without h"
            raise _wrong(ValueError, name, text, list(tensor.shape))
        if name in ("labels", "token_ids") and (tensor.dtype.is_floating_point or tensor.dtype in _NO_IDS):
            raise _wrong(TypeError, name, "an integer dtype (token ids)", tensor.dtype)
    if isinstance(temperature, Tensor) and temperature.dim() > 0 and temperature.shape != shape:
        raise _wrong(ValueError, "temperature", f"a scalar or shape {list(shape)}", list(temperature.shape))
    for name, tensor in (given | {"weight": weight, "temperature": temperature}).items():
        if isinstance(tensor, Tensor) and tensor.device != hidden.device:
            raise _wrong(ValueError, name, f"device {hidden.device} to match hidden", tensor.device)


def check_temperature(temperature: Any) -> None:
    """A number above zero, or a tensor of them."""
    if not isinstance(temperature, Tensor):
        check_number("temperature", temperature, positive=True)
        return
    if not temperature.dtype.is_floating_point:
        raise _wrong(TypeError, "temperature", "a floating-point dtype", temperature.dtype)
    if temperature.requires_grad:
        expected = "a tensor without requires_grad (it gets no gradient; detach it)"
        raise _wrong(ValueError, "temperature", expected, "requires_grad=True")


def check_number(name: str, value: Any, positive: bool) -> None:
    """A finite number; above zero if `positive`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(TypeError, name, "a number", type(value).__name__)
    if not -math.inf < value < math.inf or (positive and value <= 0):  # which a graph can ask of a symbol, too
        raise _wrong(ValueError, name, "a finite number" + (" above 0" if positive else ""), value)


def check_counts(**given: tuple[Any, int | None]) -> None:
    """Of each name a value and the least that it may be: the value is None, or a whole number."""
    for name, (value, least) in given.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong(TypeError, name, "an integer", type(value).__name__)
        if least is not None and value < least:
            raise _wrong(ValueError, name, f"at least {least}", value)


def check_choice(name: str, value: Any, *choices: str) -> None:
    """One of the names that are known."""
    if value not in choices:
        *others, last = map(repr, choices)
        raise _wrong(ValueError, name, f"{', '.join(others)} or {last}", repr(value))


def check_vocabulary(total: int, vocab_size: int | None, topk: int) -> None:
    """`vocab_size` and `topk` against the rows of all shards."""
    if vocab_size is not None and topk > vocab_size:
        raise _wrong(ValueError, "topk", f"at most vocab_size = {vocab_size}", topk)
    for name, value in {"vocab_size": vocab_size or 0, "topk": topk}.items():
        if value > total:
            most = f"at most {total}, the number of weight rows on all ranks of tp_group"
            raise _wrong(ValueError, name, most, value)


def group_named(name: str) -> ProcessGroup:
    """The process group with this name, as functional collectives know it."""
    try:
        return cast(ProcessGroup, cast(Any, distributed_c10d)._resolve_process_group(name))
    except (RuntimeError, ValueError) as error:
        expected = "a process group or the name of one (its group_name)"
        raise _wrong(ValueError, "tp_group", expected, repr(name)) from error


def check_vocab_range(start: int, end: int, weight: Tensor, group: ProcessGroup) -> None:
    """Raise unless the caller's range is that of the shard: the operator derives it from the rank and the shard."""
    expected = (group.rank() * len(weight), (group.rank() + 1) * len(weight))
    if (start, end) != expected:
        where = f"{expected} for the {len(weight)} rows on rank {group.rank()} of the tensor-parallel group"
        raise _wrong(ValueError, "vocab_start_index, vocab_end_index", where, (start, end))


OutOfVocabGrad = Literal["zero", "legacy"]
BackendName = Literal["auto", "torch", "triton"]
_OUTSIDE, _BACKENDS = get_args(OutOfVocabGrad), get_args(BackendName)


@dataclass(frozen=True, kw_only=True)
class LogprobOptions:
    """What few callers of `linear_logprob` set.

    logit_scale: multiplies the logits (MuP's output multiplier).
    max_rows: an upper bound on the rows that are computed, the same on every rank. Without it, a GPU's host waits once,
        to learn how many they are, or computes all in a CUDA graph. Too low a one raises, or on a GPU makes all NaN.
    reduce_hidden_grad: sum the gradient of `hidden` over `tp_group`; not if your own backward does.
    fuse_main_grad: add the weight's gradient to `weight.main_grad` as Megatron's gradient accumulation fusion does.
    out_of_vocab_grad: of a label outside the vocabulary, of log-prob 0: "zero", or "legacy", that of `-logsumexp`.
    backend: "auto" takes the fastest one that can run; if "triton" cannot run here, it warns once and uses "torch".
    tile_bytes: the size of the largest temporary: a tile with its casts, sums and copies of rows (the triton backend
        gives these as much again), but for a float32 copy of the hidden gradient if hidden is narrower or masked.
    """

    logit_scale: float = 1.0
    max_rows: int | None = None
    reduce_hidden_grad: bool = True
    fuse_main_grad: bool = False
    out_of_vocab_grad: OutOfVocabGrad = "zero"
    backend: BackendName = "auto"
    tile_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.logit_scale != 1:
            check_number("logit_scale", self.logit_scale, positive=False)
        check_counts(max_rows=(self.max_rows, 0), tile_bytes=(self.tile_bytes, 1))
        if self.backend not in _BACKENDS or self.out_of_vocab_grad not in _OUTSIDE:
            check_choice("backend", self.backend, *_BACKENDS)
            check_choice("out_of_vocab_grad", self.out_of_vocab_grad, *_OUTSIDE)


@dataclass(frozen=True, kw_only=True)
class LogprobQuery(LogprobOptions):
    """All arguments of `vocab_pass`. Tensors are shaped like the tokens `[...]`, `token_ids` `[..., k]`."""

    labels: Tensor | None = None
    temperature: float | Tensor = 1.0
    mask: Tensor | None = None
    entropy: bool = False
    ignore_index: int | None = -100
    vocab_size: int | None = None
    tp_group: ProcessGroup | None = None
    keep_bytes: int = 0
    topk: int = 0
    token_ids: Tensor | None = None
    sum_pi_squared: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature)
        if self.keep_bytes is None:
            raise _wrong(TypeError, "keep_bytes", "an integer", "None")
        check_counts(ignore_index=(self.ignore_index, None), vocab_size=(self.vocab_size, 1))
        check_counts(keep_bytes=(self.keep_bytes, 0), topk=(self.topk, 0))
        group = self.tp_group
        if group is not None and (not isinstance(group, ProcessGroup) or group.rank() < 0):
            raise _wrong(TypeError, "tp_group", "a process group this rank belongs to, or None", group)
        if self.max_rows is None:
            return
        choosing = [one for one in (self.mask, None if self.ignore_index is None else self.labels) if one is not None]
        if not choosing:
            expected = "None, because neither a mask nor labels with an ignore_index leave rows out"
            raise _wrong(ValueError, "max_rows", expected, self.max_rows)
        most = min(tensor.numel() if isinstance(tensor, Tensor) else self.max_rows for tensor in choosing)
        if self.max_rows > most:
            raise _wrong(ValueError, "max_rows", f"at least 0 and at most {most}", self.max_rows)

    def rows_wanted(self) -> Tensor | None:
        """`[tokens]` booleans: which rows the mask keeps and no ignored label leaves out; None: all."""
        kept = None if self.mask is None else self.mask.reshape(-1) != 0
        if self.labels is None or self.ignore_index is None:
            return kept
        labelled = self.labels.reshape(-1).long() != self.ignore_index
        return labelled if kept is None else kept & labelled
