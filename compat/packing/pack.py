"""Converts padded batches and nested tensors into packed rows, and back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.packing.gather import Gradient, gather_shares
from mcore_unpatch.compat.packing.layout import PackedLayout, plan_packing

LayRow = Callable[[list[int]], PackedLayout]


@dataclass(frozen=True)
class Packer:
    """Packs every tensor of one batch the same way, and unpacks results into the batch's own shape.

    Made by `pack_padded` or `pack_nested`. `places` `[real tokens]` are indices into the flattened padded batch of
    `shape` `[b, s]`; a nested batch has neither.
    """

    layout: PackedLayout
    places: Tensor | None = None
    shape: tuple[int, int] | None = None
    offsets: Tensor | None = field(default=None, repr=False)

    def pack(self, values: Tensor, fill: float = 0) -> Tensor:
        """`[b, s, ...]` or nested `[b, ragged, ...]` to this rank's row `[1, local tokens, ...]`."""
        if self.places is None:
            real = self._ragged(values)
        else:
            if values.is_nested or tuple(values.shape[:2]) != self.shape:
                expected = list(self.shape or ())
                found = "nested" if values.is_nested else list(values.shape)
                raise ValueError(f"values: expected {expected} to match the attention mask, got {found}")
            real = values.flatten(0, 1)[self.places]
        if real.shape[0] != self.layout.tokens:
            raise ValueError(f"values: expected {self.layout.tokens} tokens as in the layout, got {real.shape[0]}")
        padding = real.new_full((1, *real.shape[1:]), fill)
        return torch.cat([real, padding])[self.layout.real_index(real.device)][None]

    def unpack(
        self, row: Tensor, fill: float = 0, *, cp_group: ProcessGroup | None = None, gradient: Gradient = "own"
    ) -> Tensor:
        """This rank's row `[1, local tokens, ...]` back to `[b, s, ...]` or nested, with `fill` for padding.

        With context parallelism the rows of `cp_group` are gathered first; `gradient` says what that gather's backward
        does (see `gather_shares`).
        """
        if row.shape[:2] != (1, self.layout.local_tokens):
            raise ValueError(f"row: expected [1, {self.layout.local_tokens}, ...], got {list(row.shape)}")
        if self.layout.cp_size > 1:
            if cp_group is None or cp_group.size() != self.layout.cp_size:
                size = None if cp_group is None else cp_group.size()
                raise ValueError(f"cp_group: expected {self.layout.cp_size} ranks as in the layout, got {size}")
            row = gather_shares(row, cp_group, gradient).flatten(0, 1)
        real = row.flatten(0, 1)[self.layout.gathered_index(row.device)]
        if self.places is None:
            return torch.nested.nested_tensor_from_jagged(real, self.offsets)
        assert self.shape is not None
        flat = real.new_full((self.shape[0] * self.shape[1], *real.shape[1:]), fill)
        return flat.index_put((self.places,), real).view(*self.shape, *real.shape[1:])

    def _ragged(self, values: Tensor) -> Tensor:
        if not values.is_nested:
            raise ValueError(f"values: expected a tensor nested like the packer's batch, got {list(values.shape)}")
        offsets: Tensor = values.offsets()  # type: ignore[attr-defined]
        real: Tensor = values.values()
        if offsets is not self.offsets:
            _check_lengths("values", offsets.diff(), list(self.layout.lengths))
        return real

    def packed_seq_params(self, device: torch.device) -> Any:
        """Megatron's description of the packed row."""
        return self.layout.packed_seq_params(device)


def pack_padded(
    attention_mask: Tensor,
    *,
    lengths: list[int] | None = None,
    tp_size: int = 1,
    cp_size: int = 1,
    cp_rank: int = 0,
    token_multiple: int = 1,
) -> Packer:
    """A packer for padded batches: `attention_mask` `[b, s]` is true where a token is real, on either side or anywhere.

    Reading the lengths needs one device sync; pass `lengths` if they are known. (On a CPU they are checked.)
    """
    row = partial(plan_packing, tp_size=tp_size, cp_size=cp_size, cp_rank=cp_rank, token_multiple=token_multiple)
    return padded_packer(attention_mask, row, lengths)


def pack_nested(
    batch: Tensor,
    *,
    lengths: list[int] | None = None,
    tp_size: int = 1,
    cp_size: int = 1,
    cp_rank: int = 0,
    token_multiple: int = 1,
) -> Packer:
    """A packer for batches that are nested like `batch` (`[b, ragged, ...]`, layout `torch.jagged`)."""
    row = partial(plan_packing, tp_size=tp_size, cp_size=cp_size, cp_rank=cp_rank, token_multiple=token_multiple)
    return nested_packer(batch, row, lengths)


def padded_packer(attention_mask: Tensor, row: LayRow, lengths: list[int] | None = None) -> Packer:
    """`pack_padded` into a row that `row(lengths)` lays out."""
    if attention_mask.dim() != 2:
        raise ValueError(f"attention_mask: expected [batch, sequence], got {list(attention_mask.shape)}")
    real = attention_mask != 0
    layout = row(_lengths("attention_mask", real.sum(-1), lengths))
    # Stable sort: real tokens first, in their order. Unlike nonzero(), its size is known without asking the device.
    places = torch.argsort((~real).flatten(), stable=True)[: layout.tokens]
    return Packer(layout, places, (real.shape[0], real.shape[1]))


def nested_packer(batch: Tensor, row: LayRow, lengths: list[int] | None = None, name: str = "batch") -> Packer:
    """`pack_nested` into a row that `row(lengths)` lays out."""
    if not batch.is_nested or batch.layout != torch.jagged:
        raise ValueError(f"{name}: expected a nested tensor with layout=torch.jagged")
    offsets: Tensor = batch.offsets()  # type: ignore[attr-defined]
    return Packer(row(_lengths(name, offsets.diff(), lengths)), offsets=offsets)


def _lengths(name: str, counted: Tensor, given: list[int] | None) -> list[int]:
    if given is None:
        return [int(n) for n in counted.tolist()]
    _check_lengths(name, counted, given)
    return given


def _check_lengths(name: str, counted: Tensor, lengths: list[int]) -> None:
    """Raise for wrong lengths of the same total, which would mix the sequences. Only checked on a CPU."""
    if len(counted) != len(lengths) or (counted.device.type == "cpu" and counted.tolist() != lengths):
        raise ValueError(f"{name}: has sequences of {counted.tolist()} tokens, but lengths is {lengths}")
