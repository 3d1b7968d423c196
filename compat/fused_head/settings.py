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

_NO_IDS = (torch.bool, torch.complex64)


def _wrong(kind: type[Exception], argument: str, expected: str, got: object) -> Exception:
    return kind(f"{argument}: expected {expected}, got {got}")


def check_tensors(hidden: Any, weight: Any, temperature: Any, **rows: Any) -> None:
    """Shapes, dtypes and devices: of hidden states and weight, and of the arguments that have a row for each token."""
    given = {name: tensor for name, tensor in rows.items() if tensor is not None}
    for name, tensor in ({"hidden": hidden, "weight": weight} | given).items():
        if not isinstance(tensor, Tensor):
            expected = "a tensor of booleans" if name == "keep_mask" else "a tensor"
            raise _wrong(TypeError, name, expected, type(tensor).__name__)
        if name in ("hidden", "weight") and not tensor.dtype.is_floating_point:
            raise _wrong(TypeError, name, "a floating-point dtype", tensor.dtype)
    if weight.dim() != 2:
        raise _wrong(ValueError, "weight", "shape [vocab / tp, h]", list(weight.shape))
    if hidden.dim() < 1 or hidden.shape[-1] != weight.shape[1] or weight.shape[1] == 0:
        raise _wrong(ValueError, "hidden", f"shape [..., {weight.shape[1]}] to match weight", list(hidden.shape))
    shape = hidden.shape[:-1]
    for name, tensor in given.items():
        behind = tensor.shape[len(shape) :] if name == "token_ids" else weight.shape[: name == "keep_mask"]
        if tensor.shape != (*shape, *behind) or len(behind) != (name in ("token_ids", "keep_mask")):
            more = {"token_ids": " + [k]", "keep_mask": f" + [{len(weight)}], this rank's rows of the weight,"}
            text = f"shape {list(shape)}{more.get(name, '')} to match hidden without h"
            raise _wrong(ValueError, name, text, list(tensor.shape))
        if name == "keep_mask" and tensor.dtype != torch.bool:
            raise _wrong(TypeError, name, "a tensor of booleans", tensor.dtype)
        if name in ("labels", "token_ids") and (tensor.dtype.is_floating_point or tensor.dtype in _NO_IDS):
            raise _wrong(TypeError, name, "an integer dtype (token ids)", tensor.dtype)
    check_temperature(temperature, shape)
    for name, tensor in (given | {"weight": weight, "temperature": temperature}).items():
        if isinstance(tensor, Tensor) and tensor.device != hidden.device:
            raise _wrong(ValueError, name, f"device {hidden.device} to match hidden", tensor.device)


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
        group = self.tp_group
        if group is not None and (not isinstance(group, ProcessGroup) or group.rank() < 0):
            raise _wrong(TypeError, "tp_group", "a process group this rank belongs to, or None", group)


@dataclass(frozen=True, kw_only=True)
class LogprobQuery(HeadSettings):
    """And what is asked of the rows: all arguments of `linear_logprob`. Tensors are shaped like the tokens `[...]`."""

    labels: Tensor | None = field(default=None, kw_only=False)
    mask: Tensor | None = None
    mask_count: int | None = None
    entropy: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask is None and self.mask_count is not None:
            raise _wrong(ValueError, "mask_count", "None, because there is no mask", self.mask_count)
        check_count("mask_count", self.mask_count, 0, self.mask.numel() if isinstance(self.mask, Tensor) else None)


@dataclass(frozen=True, kw_only=True)
class VocabQuery(LogprobQuery):
    """All arguments of `vocab_pass`; these tensors have a dimension more than the tokens."""

    topk: int = 0
    token_ids: Tensor | None = None
    sum_pi_squared: bool = False
    keep_mask: Tensor | None = None
    logit_stats: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("topk", self.topk, 0)


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
