"""What code written for a tensor of logits may do to `LazyLogits`: select and rearrange tokens, divide, ask the shape.

All of it works on the hidden states, and on a temperature per token, in the same way: only the last dimension differs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite, prod
from numbers import Real
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from mcore_unpatch.compat.fused_head.problem import math_dtype

_GIB = 2**30
_JOINS = (torch.cat, torch.concat, torch.concatenate)
# Questions about logits that the hidden states answer, and those that a tensor without memory does.
_OF_HIDDEN = {"device", "ndim", "is_cuda", "is_cpu", "get_device", "is_inference"}
_OF_ANY_LOGITS = {"size", "numel", "nelement", "stride", "is_contiguous", "is_floating_point", "is_complex"}
_OF_ANY_LOGITS |= {"element_size", "itemsize", "nbytes", "layout", "is_nested", "is_sparse", "storage_offset"}
_IN_ORDER = (None, torch.contiguous_format, torch.preserve_format)


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
    def requires_grad(self) -> bool:
        """Whether results will have gradients, to the hidden states or to the head."""
        return self.hidden.requires_grad or bool(self.head.weight.requires_grad)

    def dim(self) -> int:
        """With the vocabulary's dimension."""
        return self.hidden.dim()

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
        masks = [part for part in parts if isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8)]
        new = sum(part is None or part is Ellipsis for part in parts)
        used = len(parts) - new + sum(mask.dim() - 1 for mask in masks)
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

    def reshape(self, *shape: Any) -> Self:
        """As of a tensor; the vocabulary stays the last dimension."""
        sizes, tokens = _sizes(shape), self.shape[:-1].numel()
        whole = all(isinstance(size, int) for size in sizes) and bool(sizes)
        if not whole or (sizes[-1] != self.shape[-1] and (sizes[-1] != -1 or prod(sizes[:-1]) != tokens)):
            raise self._no(f"reshape{sizes}", f"a shape that ends in the vocabulary, {self.shape[-1]}")
        return self._tokens(lambda rows: rows.reshape(*sizes[:-1], rows.shape[-1]))

    view = reshape

    def new_zeros(self, *shape: Any) -> Tensor:
        """As of a tensor: zeros in the dtype of the results, and not as many as there would be logits."""
        sizes = _sizes(shape)
        if len(sizes) > 1 and sizes[-1] == self.shape[-1]:
            raise self._no(f"new_zeros{sizes}")
        return self.hidden.new_zeros(sizes, dtype=self.dtype)

    def contiguous(self, memory_format: Any = None) -> Self:
        """The same: there is nothing to lay out, and nobody can write to it."""
        if memory_format not in _IN_ORDER:
            raise self._no(f"a copy in {memory_format}")
        return self

    clone = __copy__ = contiguous

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self._no("pickling, or a deep copy,")

    def to(self, *args: Any, copy: bool = False, memory_format: Any = None, **kwargs: Any) -> Self:
        """The same for the dtype and the device that results have anyway; anything else raises."""
        asked: list[Any] = []
        for value in (*args, *kwargs.values()):
            asked += [value.dtype, value.device] if isinstance(value, Tensor) else [value]
        asked = [torch.device(value) if isinstance(value, str) else value for value in asked]
        here = (self.dtype, self.device, torch.device(self.device.type), True, False, None)
        if all(value in here for value in asked) and memory_format in _IN_ORDER:
            return self
        raise self._no(f"to({', '.join(map(str, asked))})", "the results, which you can convert")

    type_as = to

    def float(self) -> Self:
        """The same unless the head is float64."""
        return self.to(torch.float32)

    def div(self, temperature: Any) -> Self:
        """Divide the logits by a temperature: a number, or `[..., 1]`."""
        if isinstance(temperature, LikeATensor):
            raise self._no("a division by logits")
        if isinstance(temperature, Tensor):
            if temperature.dim() > 0 and (temperature.dim() != self.dim() or temperature.shape[-1] != 1):
                raise TypeError(
                    f"temperature: expected a number, or one per token with a last dimension of 1, to divide logits "
                    f"{list(self.shape)}, got {list(temperature.shape)}"
                )
            temperature = temperature.to(self.dtype).expand(*self.shape[:-1], 1)
        elif isinstance(temperature, bool) or not isinstance(temperature, Real):
            raise TypeError(f"temperature: expected a number or a tensor, got {type(temperature).__name__}")
        else:
            temperature = float(temperature)
        return self._with(self.hidden, self.temperature * temperature)

    __truediv__ = true_divide = div

    def mul(self, factor: Any) -> Self:
        """Multiply the logits by a positive number, or by `[..., 1]`."""
        if isinstance(factor, Tensor) and (factor.dim() == 0 or factor.shape[-1] == 1):
            return self.div(1 / factor.to(self.dtype))
        if isinstance(factor, Real) and not isinstance(factor, bool) and float(factor) > 0 and isfinite(factor):
            return self.div(1 / float(factor))
        raise self._no("a product with anything but positive numbers, one for all logits or one per token,")

    __mul__ = __rmul__ = mul
    __array_ufunc__ = None  # so that numpy's scalars leave arithmetic to us

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in _JOINS:
            return _joined(*args, **kwargs)
        name = str(getattr(function, "__name__", function))
        leaves = tree_leaves([args, kwargs], lambda leaf: isinstance(leaf, cls))
        logits = next(leaf for leaf in leaves if isinstance(leaf, cls))
        if args and args[0] is logits and name in _FUNCTIONS:
            return getattr(logits, name)(*args[1:], **kwargs)
        raise logits._no(f"torch's {name}")

    def __getattr__(self, name: str) -> Any:
        if name in _OF_HIDDEN:
            return getattr(self.hidden, name)
        if name in _OF_ANY_LOGITS:
            return getattr(torch.empty(self.shape, dtype=self.dtype, device="meta"), name)
        if name.startswith("__") or not hasattr(Tensor, name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        raise self._no(f".{name}", error=_NotATensorError)

    def _tokens(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same rearrangement of hidden states and temperatures."""
        return self._with(change(self.hidden), _changed(self.temperature, change))

    def _no(self, what: str, instead: str = "", error: type[Exception] = TypeError) -> Exception:
        size = self.shape.numel() * self.dtype.itemsize / _GIB
        return error(
            f"{what} needs real logits, and this model returns {type(self).__name__}: hidden states from which results "
            f"are computed when asked for. Use {instead or 'log_probs(labels), entropy(), top_k(k) or compute(...)'}; "
            f"or build the logits {list(self.shape)} with .logits(), which takes {size:.2g} GiB."
        )


class _NotATensorError(AttributeError, TypeError):
    """A missing method: an AttributeError, so that `hasattr` and `getattr` with a default work."""


def _rearranging(name: str) -> Callable[..., Any]:
    """The method `name` of a tensor, where it leaves the vocabulary's dimension last and whole."""

    def method(self: LikeATensor, *args: Any, **kwargs: Any) -> Any:
        def change(rows: Tensor) -> list[Tensor]:
            given, named = tree_map_only(Tensor, lambda index: index.to(rows.device), (args, kwargs))
            parts = getattr(rows, name)(*given, **named)
            return [parts] if isinstance(parts, Tensor) else list(parts)

        words = max(self.shape) + 1  # a length that no dimension has and nobody can ask for: it tells whole from cut
        shapes = [part.shape for part in change(torch.empty(*self.shape[:-1], words, device="meta"))]
        if any(shape[-1:] != (words,) for shape in shapes):
            raise self._no(f"{name} of {list(self.shape)} over the vocabulary", "dimensions of tokens")
        several = [
            self._with(rows, _changed(self.temperature, lambda own, at=at: change(own)[at]))  # type: ignore[misc]
            for at, rows in enumerate(change(self.hidden))
        ]
        return tuple(several) if name in _GIVE_SEVERAL else several[0]

    method.__doc__ = f"As of a tensor, over dimensions of tokens: `Tensor.{name}`."
    return method


def _changed(temperature: float | Tensor, change: Callable[[Tensor], Tensor]) -> float | Tensor:
    """A temperature per token `[..., 1]` after a rearrangement; of two columns, none of which is squeezed away."""
    if not isinstance(temperature, Tensor):
        return temperature
    return change(temperature.expand(*temperature.shape[:-1], 2))[..., :1]


_GIVE_SEVERAL = {"chunk", "split", "unbind"}
_REARRANGING = {"squeeze", "unsqueeze", "flatten", "transpose", "permute", "select", "index_select", "narrow"}
_REARRANGING |= _GIVE_SEVERAL
for _name in _REARRANGING:
    setattr(LikeATensor, _name, _rearranging(_name))

# Functions of torch that are the methods of the same name.
_FUNCTIONS = _REARRANGING | {"reshape", "div", "true_divide", "mul", "clone", "detach", "sum"}
_FUNCTIONS |= {"mean", "is_floating_point", "is_complex", "numel"}


def _refuse(name: str) -> Callable[..., Any]:
    def refuse(self: LikeATensor, *others: Any) -> Any:
        raise self._no(f"`{name}`")

    return refuse


_ARITHMETIC = ["add", "sub", "matmul", "pow", "mod", "floordiv", "and", "or", "xor"]
for _name in (
    *(f"__{side}{operation}__" for operation in _ARITHMETIC for side in ("", "r", "i")),
    *("__rtruediv__", "__itruediv__", "__imul__", "__neg__", "__pos__", "__abs__", "__invert__", "__round__", "__lt__"),
    *("__le__", "__gt__", "__ge__", "__setitem__", "__bool__", "__array__", "__float__", "__int__", "__contains__"),
):
    setattr(LikeATensor, _name, _refuse(_name))


def _sizes(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """`(2, 3)` from `2, 3` and from `(2, 3)`."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], Sequence) else given


def _joined(parts: Sequence[LikeATensor], dim: int = 0) -> LikeATensor:
    """`torch.cat` of logits of the same head, over tokens."""
    first = next(part for part in parts if isinstance(part, LikeATensor))
    if any(not isinstance(part, LikeATensor) or part.head is not first.head for part in parts):
        raise first._no("torch.cat of these logits with a tensor, or with those of another model or forward,")
    at = dim if dim >= 0 else dim + first.dim()
    if at == first.dim() - 1:
        raise first._no(f"torch.cat over dimension {dim} of {list(first.shape)}", "a dimension of tokens")
    temperature = first.temperature
    if any(isinstance(part.temperature, Tensor) or part.temperature != temperature for part in parts):
        each = [torch.as_tensor(part.temperature, dtype=part.dtype, device=part.device) for part in parts]
        temperature = torch.cat([one.expand(*part.shape[:-1], 1) for one, part in zip(each, parts, strict=True)], at)
    return first._with(torch.cat([part.hidden for part in parts], at), temperature)
