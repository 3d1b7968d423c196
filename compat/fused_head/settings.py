"""The arguments of a pass over the vocabulary, each once: how a head is read, and what is asked of its rows.

A class adds to the one before it: `PassSettings` are the options of every processor, `VocabQuery` is a whole call. An
error for a wrong one names the argument, what was expected and what was passed; nothing here waits for a GPU.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, get_args

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.autograd import has_main_grad


def _wrong(kind: type[Exception], argument: str, expected: str, got: object) -> Exception:
    return kind(f"{argument}: expected {expected}, got {got}")


def waiting_is_free(tensor: Tensor) -> bool:
    """Whether values can be read at no cost; on an accelerator, reading waits for all queued work."""
    return tensor.device.type == "cpu"


def check_tensors(hidden: Any, weight: Any, labels: Any, mask: Any, temperature: Any, token_ids: Any = None) -> None:
    """Shapes, dtypes and devices of the tensors."""
    given = {"hidden": hidden, "weight": weight, "labels": labels, "mask": mask, "token_ids": token_ids}
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor) and (tensor is not None or name in ("hidden", "weight")):
            raise _wrong(TypeError, name, "a tensor", type(tensor).__name__)
    for name, tensor in (("hidden", hidden), ("weight", weight)):
        if not tensor.dtype.is_floating_point:
            raise _wrong(TypeError, name, "a floating-point dtype", tensor.dtype)
    if weight.dim() != 2:
        raise _wrong(ValueError, "weight", "shape [vocab / tp, h]", list(weight.shape))
    if hidden.dim() < 1 or hidden.shape[-1] != weight.shape[1] or weight.shape[1] == 0:
        raise _wrong(ValueError, "hidden", f"shape [..., {weight.shape[1]}] to match weight", list(hidden.shape))
    shape = hidden.shape[:-1]
    for name, tensor in (("labels", labels), ("mask", mask)):
        if tensor is not None and tensor.shape != shape:
            raise _wrong(ValueError, name, f"shape {list(shape)} to match hidden without h", list(tensor.shape))
    if token_ids is not None and (token_ids.dim() != hidden.dim() or token_ids.shape[:-1] != shape):
        raise _wrong(ValueError, "token_ids", f"shape {list(shape)} + [k]", list(token_ids.shape))
    for name, ids in (("labels", labels), ("token_ids", token_ids)):
        if ids is not None and (ids.dtype.is_floating_point or ids.dtype in (torch.bool, torch.complex64)):
            raise _wrong(TypeError, name, "an integer dtype (token ids)", ids.dtype)
    check_temperature(temperature, shape)
    for name, tensor in (given | {"temperature": temperature}).items():
        if isinstance(tensor, Tensor) and tensor.device != hidden.device:
            raise _wrong(ValueError, name, f"device {hidden.device} to match hidden", tensor.device)


def check_keep_mask(keep_mask: Any, hidden: Tensor, weight: Tensor) -> None:
    """A boolean for every token and every row of this rank's weight."""
    if keep_mask is None:
        return
    if not isinstance(keep_mask, Tensor) or keep_mask.dtype != torch.bool:
        got = keep_mask.dtype if isinstance(keep_mask, Tensor) else type(keep_mask).__name__
        raise _wrong(TypeError, "keep_mask", "a tensor of booleans", got)
    shape = [*hidden.shape[:-1], len(weight)]
    if list(keep_mask.shape) != shape:
        expected = f"shape {shape} to match hidden without h and this rank's weight rows"
        raise _wrong(ValueError, "keep_mask", expected, list(keep_mask.shape))
    if keep_mask.device != hidden.device:
        raise _wrong(ValueError, "keep_mask", f"device {hidden.device} to match hidden", keep_mask.device)


def check_temperature(temperature: Any, shape: torch.Size | None = None) -> None:
    """A number above zero, or a tensor of a scalar or of `shape`, where that is known."""
    if not isinstance(temperature, Tensor):
        check_number("temperature", temperature, positive=True)
        return
    if not temperature.dtype.is_floating_point:
        raise _wrong(TypeError, "temperature", "a floating-point dtype", temperature.dtype)
    if temperature.requires_grad:
        expected = "a tensor without requires_grad (it gets no gradient; detach it)"
        raise _wrong(ValueError, "temperature", expected, "requires_grad=True")
    if shape is not None and temperature.dim() > 0 and temperature.shape != shape:
        raise _wrong(ValueError, "temperature", f"a scalar or shape {list(shape)}", list(temperature.shape))


def check_number(name: str, value: Any, positive: bool) -> None:
    """A finite number; above zero if `positive`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(TypeError, name, "a number", type(value).__name__)
    if not math.isfinite(value) or (positive and value <= 0):
        raise _wrong(ValueError, name, "a finite number" + (" above 0" if positive else ""), value)


def check_count(name: str, value: Any, least: int | None = None, most: int | None = None) -> None:
    """None, or a whole number within bounds."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(TypeError, name, "an integer", type(value).__name__)
    if (least is not None and value < least) or (most is not None and value > most):
        bounds = f"at least {least}" + (f" and at most {most}" if most is not None else "")
        raise _wrong(ValueError, name, bounds, value)


def check_choice(name: str, value: Any, *choices: str) -> None:
    """One of the names that are known."""
    if value not in choices:
        *others, last = map(repr, choices)
        raise _wrong(ValueError, name, f"{', '.join(others)} or {last}", repr(value))


def check_mask_count(mask_count: Any, mask: Tensor | None) -> None:
    """An upper bound on the mask's rows; only with a mask."""
    if mask is None and mask_count is not None:
        raise _wrong(ValueError, "mask_count", "None, because there is no mask", mask_count)
    check_count("mask_count", mask_count, 0, None if mask is None else mask.numel())


def check_group(name: str, group: Any) -> None:
    """None, or a process group of this rank."""
    if group is not None and (not isinstance(group, ProcessGroup) or group.rank() < 0):
        raise _wrong(TypeError, name, "a process group this rank belongs to, or None", group)


def check_positive(name: str, values: Tensor) -> None:
    """Finite numbers above zero; reads the values."""
    bad = ~(torch.isfinite(values) & (values > 0))
    if bad.any():
        raise _wrong(ValueError, name, "finite numbers above 0", f"{values[bad][0].item()} at {int(bad.sum())} rows")


def check_vocabulary(total: int | Tensor, vocab_size: int | None, topk: int) -> Tensor | None:
    """`vocab_size` and `topk` against the rows of all shards: an error, or, where only the device knows, a flag."""
    if vocab_size is not None and topk > vocab_size:
        raise _wrong(ValueError, "topk", f"at most vocab_size = {vocab_size}", topk)
    needed = max(vocab_size or 0, topk)
    if isinstance(total, Tensor):
        return total >= needed if needed else None
    if needed > total:
        name = "vocab_size" if vocab_size is not None else "topk"
        raise _wrong(ValueError, name, f"at most {total}, the number of weight rows on all ranks of tp_group", needed)
    return None


def check_heads(student_hidden: Tensor, student_weight: Tensor, teacher_hidden: Tensor, teacher_weight: Tensor) -> None:
    """Two heads over the same tokens and vocabulary."""
    shape = student_hidden.shape[:-1]
    if teacher_hidden.shape[:-1] != shape:
        raise _wrong(ValueError, "teacher_hidden", f"shape {list(shape)} + [h]", list(teacher_hidden.shape))
    if len(teacher_weight) != len(student_weight):
        expected = f"{len(student_weight)} rows to match the student"
        raise _wrong(ValueError, "teacher_weight", expected, f"{len(teacher_weight)} rows")
    if teacher_hidden.device != student_hidden.device:
        raise _wrong(ValueError, "teacher_hidden", f"device {student_hidden.device}", teacher_hidden.device)


def check_vocab_range(start: int, end: int, weight: Tensor, group: ProcessGroup) -> None:
    """Raise unless the caller's range is that of the shard: the operator derives it from the shards themselves."""
    expected = (group.rank() * len(weight), (group.rank() + 1) * len(weight))
    if (start, end) != expected:
        raise ValueError(
            f"vocab_start_index, vocab_end_index: expected {expected} for the {len(weight)} rows on rank "
            f"{group.rank()} of the tensor-parallel group, got {(start, end)}"
        )


OutOfVocabGrad = Literal["zero", "legacy"]
BackendName = Literal["auto", "torch", "triton"]
KeepBytes = int | Literal["auto"] | None
Wider = TypeVar("Wider")
Asked = TypeVar("Asked")
Result = TypeVar("Result")
Fields = ParamSpec("Fields")


@dataclass(frozen=True, kw_only=True)
class PassSettings:
    """How the head is read: the options of `linear_logprob` that a processor takes and passes on as they are."""

    temperature: float | Tensor = 1.0
    vocab_size: int | None = None
    ignore_index: int | None = -100
    out_of_vocab_grad: OutOfVocabGrad = "zero"
    backend: BackendName = "auto"
    tile_bytes: int | None = None
    keep_bytes: KeepBytes = None
    batch_invariant: bool = False

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        check_choice("backend", self.backend, *get_args(BackendName))
        check_choice("out_of_vocab_grad", self.out_of_vocab_grad, *get_args(OutOfVocabGrad))
        check_count("ignore_index", self.ignore_index)
        for name in ("vocab_size", "tile_bytes"):
            check_count(name, getattr(self, name), 1)
        if self.keep_bytes != "auto":
            check_count("keep_bytes", self.keep_bytes, 0)

    def widened(self, kind: type[Wider], **more: Any) -> Wider:
        """What these settings have in common with a wider `kind`, and more of it."""
        known: Any = kind
        return kind(
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name in known.__dataclass_fields__} | more
        )


@dataclass(frozen=True, kw_only=True)
class HeadSettings(PassSettings):
    """The same for one head: its factor, who holds its shards, and where gradients go."""

    logit_scale: float = 1.0
    tp_group: ProcessGroup | None = None
    reduce_hidden_grad: bool = True
    fuse_main_grad: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("logit_scale", self.logit_scale, positive=False)
        check_group("tp_group", self.tp_group)

    def check_weight(self, weight: Tensor) -> None:
        """Raise unless the gradient of this weight can go where it is to go."""
        will_have_grad = torch.is_grad_enabled() and weight.requires_grad
        if self.fuse_main_grad and will_have_grad and not has_main_grad(weight):
            raise ValueError(
                "fuse_main_grad: expected a weight with main_grad (a parameter under Megatron's DDP or FSDP), got none"
            )


@dataclass(frozen=True, kw_only=True)
class LogprobQuery(HeadSettings):
    """And what is asked of the rows: all arguments of `linear_logprob`. Tensors are shaped like the tokens `[...]`."""

    labels: Tensor | None = field(default=None, kw_only=False)
    mask: Tensor | None = None
    mask_count: int | None = None
    entropy: bool = False


@dataclass(frozen=True, kw_only=True)
class VocabQuery(LogprobQuery):
    """All arguments of `vocab_pass`; these tensors have a dimension more than the tokens."""

    topk: int = 0
    token_ids: Tensor | None = None
    sum_pi_squared: bool = False
    keep_mask: Tensor | None = None
    logit_stats: bool = False


def takes(
    kind: Callable[Fields, Asked],
) -> Callable[[Callable[[Tensor, Tensor, Asked], Result]], Callable[Concatenate[Tensor, Tensor, Fields], Result]]:
    """Let a function of hidden states, weight and a query take the fields of the query as its own arguments."""
    known = signature(kind).parameters

    def decorate(
        function: Callable[[Tensor, Tensor, Asked], Result],
    ) -> Callable[Concatenate[Tensor, Tensor, Fields], Result]:
        @wraps(function)
        def call(hidden: Tensor, weight: Tensor, *labels: Fields.args, **keywords: Fields.kwargs) -> Result:
            if unknown := keywords.keys() - known.keys():
                names = ", ".join(known)
                raise TypeError(f"{function.__name__} has no argument {sorted(unknown)[0]!r}; it has {names}")
            return function(hidden, weight, kind(*labels, **keywords))

        own = signature(function)
        shown = [*list(own.parameters.values())[:2], *known.values()]
        call.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]  # `hidden` and `weight` may be named, too

    return decorate
