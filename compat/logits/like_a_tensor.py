"""What code written for a tensor of logits may do to `LazyLogits`: select and rearrange tokens, divide, ask the shape.

All of it works on the hidden states, and on a temperature per token, in the same way: only the last dimension differs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.problem import math_dtype

_GIB = 2**30
_JOINS = (torch.cat, torch.concat, torch.concatenate)


class LikeATensor:
    """The part of a tensor's interface that needs no logits; everything else raises and names the way out."""

    hidden: Tensor  # [..., h]
    head: Any
    temperature: float | Tensor  # a tensor is [..., 1]

    @property
    def shape(self) -> torch.Size:
        """What the logits' would be: `[..., vocab / tp]`."""
        return torch.Size((*self.hidden.shape[:-1], len(self.head.weight)))

    @property
    def dtype(self) -> torch.dtype:
        """That of all results."""
        return math_dtype(self.head.weight)

    def _with(self, hidden: Tensor, temperature: float | Tensor) -> Self:
        """Other tokens, or the same with another temperature."""
        return replace(self, hidden=hidden, temperature=temperature)  # type: ignore[type-var]

    def detach(self) -> Self:
        """The same without gradients, neither to the hidden states nor to the head."""
        head = replace(self.head, weight=self.head.weight.detach())
        return replace(self, hidden=self.hidden.detach(), head=head)  # type: ignore[type-var]

    @property
    def device(self) -> torch.device:
        """Where the hidden states are, and all results."""
        return self.hidden.device

    @property
    def ndim(self) -> int:
        """With the vocabulary's dimension."""
        return self.hidden.dim()

    @property
    def requires_grad(self) -> bool:
        """Whether results will have gradients to the hidden states."""
        return self.hidden.requires_grad

    def dim(self) -> int:
        """With the vocabulary's dimension."""
        return self.hidden.dim()

    def size(self, dim: int | None = None) -> Any:
        """`shape`, or one number of it."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """How many logits there would be."""
        return self.shape.numel()

    @property
    def is_cuda(self) -> bool:
        """Whether results are on a GPU of NVIDIA or AMD."""
        return self.hidden.is_cuda

    def __len__(self) -> int:
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        """Identity between objects; a comparison of every logit with a number or a tensor raises."""
        if isinstance(other, int | float | Tensor):
            raise self._no("a comparison of every logit")
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={list(self.shape)}, device={self.device}, temperature={self.temperature})"

    def __getitem__(self, index: Any) -> Self:
        """Select tokens, as of a tensor; the vocabulary cannot be indexed."""
        parts = index if isinstance(index, tuple) else (index,)
        used = sum(_dims_of(part) for part in parts)
        open_ended = any(part is Ellipsis for part in parts)
        if used > self.dim():
            raise IndexError(f"too many indices for logits {list(self.shape)}: {used}")
        if used == self.dim() or (open_ended and parts[-1] is not Ellipsis):
            words, last = self.shape[-1], parts[-1]
            if not isinstance(last, slice) or range(words)[last] != range(words):
                raise self._no(
                    "an index into the vocabulary", "log_probs_at(token_ids), or vocab_size= of DeferredHead"
                )
            parts = (*parts[:-1], slice(None))
        return self._tokens(lambda rows: rows[parts])

    def squeeze(self, dim: int | None = None) -> Self:
        """As of a tensor, for a dimension of tokens, or all of them."""
        at = tuple(range(self.dim() - 1)) if dim is None else (self._token_dim(dim, "squeeze"),)
        return self._tokens(lambda rows: rows.squeeze(at))

    def unsqueeze(self, dim: int) -> Self:
        """As of a tensor, before the vocabulary's dimension."""
        at = dim if dim >= 0 else dim + self.dim() + 1
        if not 0 <= at < self.dim():
            raise self._no(f"unsqueeze({dim})", "a dimension before the vocabulary's")
        return self._tokens(lambda rows: rows.unsqueeze(at))

    def transpose(self, dim0: int, dim1: int) -> Self:
        """As of a tensor, for two dimensions of tokens."""
        one, other = self._token_dim(dim0, "transpose"), self._token_dim(dim1, "transpose")
        return self._tokens(lambda rows: rows.transpose(one, other))

    def reshape(self, *shape: Any) -> Self:
        """As of a tensor; the vocabulary stays the last dimension."""
        sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        tokens = torch.Size(sizes[:-1]).numel()
        if not sizes or (sizes[-1] != self.shape[-1] and (sizes[-1] != -1 or tokens != self.shape[:-1].numel())):
            raise self._no(f"reshape{sizes}", f"a shape that ends in the vocabulary, {self.shape[-1]}")
        return self._tokens(lambda rows: rows.reshape(*sizes[:-1], rows.shape[-1]))

    view = reshape

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """As of a tensor, for dimensions of tokens: `flatten(0, 1)`."""
        first, last = self._token_dim(start_dim, "flatten"), self._token_dim(end_dim, "flatten")
        return self._tokens(lambda rows: rows.flatten(first, last))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """As of a tensor, over tokens."""
        at = self._token_dim(dim, "chunk")
        return self._parts(lambda rows: rows.chunk(chunks, at))

    def split(self, size: Any, dim: int = 0) -> tuple[Self, ...]:
        """As of a tensor, over tokens."""
        at = self._token_dim(dim, "split")
        return self._parts(lambda rows: rows.split(size, at))

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """As of a tensor, over tokens."""
        at = self._token_dim(dim, "unbind")
        return self._parts(lambda rows: rows.unbind(at))

    def index_select(self, dim: int, index: Tensor) -> Self:
        """As of a tensor, over tokens."""
        at = self._token_dim(dim, "index_select")
        return self._tokens(lambda rows: rows.index_select(at, index))

    def narrow(self, dim: int, start: int, length: int) -> Self:
        """As of a tensor, over tokens."""
        at = self._token_dim(dim, "narrow")
        return self._tokens(lambda rows: rows.narrow(at, start, length))

    def new_zeros(self, *shape: Any) -> Any:
        """Logits that are all zero if the shape ends in the vocabulary, built from nothing; else zeros."""
        sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        if len(sizes) < 2 or sizes[-1] != self.shape[-1]:
            return self.hidden.new_zeros(sizes, dtype=self.dtype)
        return self.detach()._with(self.hidden.new_zeros(*sizes[:-1], self.hidden.shape[-1]), 1.0)

    def contiguous(self) -> Self:
        """The same: there is nothing to lay out."""
        return self

    def float(self) -> Self:
        """The same if results are float32, which they are unless the head is float64."""
        return self.to(torch.float32)

    def to(self, *args: Any, copy: bool = False, **kwargs: Any) -> Self:
        """The same for the dtype and the device that results have anyway; anything else raises."""
        asked = [torch.device(one) if isinstance(one, str) else one for one in (*args, *kwargs.values())]
        here = (self.dtype, self.device, torch.device(self.device.type), True, False, None)
        if all(one in here for one in asked):
            return self
        raise self._no(f"to({', '.join(map(str, asked))})", "the results, which you can convert")

    def div(self, temperature: Any) -> Self:
        """Divide the logits by a temperature: a number, or `[..., 1]`."""
        if isinstance(temperature, Tensor):
            if temperature.dim() > 0 and (temperature.dim() != self.dim() or temperature.shape[-1] != 1):
                raise TypeError(
                    f"temperature: expected a number, or one per token with a last dimension of 1, to divide logits "
                    f"{list(self.shape)}, got {list(temperature.shape)}"
                )
            temperature = temperature.expand(*self.shape[:-1], 1)
        elif isinstance(temperature, bool) or not isinstance(temperature, float | int):
            raise TypeError(f"temperature: expected a number or a tensor, got {type(temperature).__name__}")
        return self._with(self.hidden, self.temperature * temperature)

    __truediv__ = div

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in _JOINS:
            return _joined(*args, **kwargs)
        name = str(getattr(function, "__name__", function))
        found = next(one for one in _flat([*args, *kwargs.values()]) if isinstance(one, cls))
        if args and args[0] is found and name in _FUNCTIONS:
            return getattr(found, name)(*args[1:], **kwargs)
        raise found._no(f"torch's {name}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(Tensor, name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        raise self._no(f".{name}", error=_NotATensorError)

    def _tokens(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same rearrangement of hidden states and temperatures."""
        return self._parts(lambda rows: (change(rows),))[0]

    def _parts(self, change: Callable[[Tensor], Sequence[Tensor]]) -> tuple[Self, ...]:
        rows, own = change(self.hidden), self.temperature
        temperatures: Sequence[float | Tensor] = change(own) if isinstance(own, Tensor) else [own] * len(rows)
        return tuple(self._with(hidden, one) for hidden, one in zip(rows, temperatures, strict=True))

    def _token_dim(self, dim: int, method: str) -> int:
        at = dim if dim >= 0 else dim + self.dim()
        if not 0 <= at < self.dim() - 1:
            raise self._no(f"{method} over dimension {dim} of {list(self.shape)}", "a dimension of tokens")
        return at

    def _no(self, what: str, instead: str = "", error: type[Exception] = TypeError) -> Exception:
        size = self.shape.numel() * self.dtype.itemsize / _GIB
        return error(
            f"{what} needs real logits, and this model returns {type(self).__name__}: hidden states from which results "
            f"are computed when asked for. Use {instead or 'log_probs(labels), entropy(), top_k(k) or compute(...)'}; "
            f"or build the logits {list(self.shape)} with .logits(), which takes {size:.2g} GiB."
        )


class _NotATensorError(AttributeError, TypeError):
    """A missing method: an AttributeError, so that `hasattr` and `getattr` with a default work."""


# Functions of torch that are the methods of the same name.
_FUNCTIONS = {"squeeze", "unsqueeze", "transpose", "reshape", "flatten", "chunk", "split", "unbind", "index_select"}
_FUNCTIONS |= {"narrow", "div", "detach", "sum", "mean"}


def _refuse(name: str) -> Callable[..., Any]:
    def refuse(self: LikeATensor, *others: Any) -> Any:
        raise self._no(f"`{name}`")

    return refuse


for _name in (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__rtruediv__", "__matmul__", "__neg__"),
    *("__rmatmul__", "__pow__", "__abs__", "__lt__", "__le__", "__gt__", "__ge__", "__setitem__", "__bool__"),
    *("__itruediv__", "__iadd__", "__imul__", "__isub__", "__array__", "__float__", "__int__", "__floordiv__"),
    "__contains__",
):
    setattr(LikeATensor, _name, _refuse(_name))


def _dims_of(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    return part.dim() if isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8) else 1


def _flat(values: Any) -> list[Any]:
    return [one for value in values for one in (value if isinstance(value, (tuple, list)) else [value])]


def _joined(parts: Sequence[LikeATensor], dim: int = 0) -> LikeATensor:
    """`torch.cat` of logits of the same head, over tokens."""
    first = next(part for part in parts if isinstance(part, LikeATensor))
    if any(not isinstance(part, LikeATensor) or part.head is not first.head for part in parts):
        raise first._no("torch.cat of these logits with a tensor, or with those of another model or forward,")
    at = first._token_dim(dim, "cat")
    temperatures = [part.temperature for part in parts]
    if any(isinstance(one, Tensor) or one != first.temperature for one in temperatures):
        temperature: float | Tensor = torch.cat([_per_token(part) for part in parts], at)
    else:
        temperature = first.temperature
    return first._with(torch.cat([part.hidden for part in parts], at), temperature)


def _per_token(part: LikeATensor) -> Tensor:
    if isinstance(part.temperature, Tensor):
        return part.temperature
    return part.hidden.new_full((*part.shape[:-1], 1), part.temperature, dtype=part.dtype)
