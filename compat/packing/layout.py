"""Packed rows: which token of which sequence lies where, on which rank; batches packed into a row, and back."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.packing.gather import Gradient, gather_shares, held_by, sum_over_ranks, zigzag_places


@dataclass(frozen=True)
class PackedLayout:
    """Sequences of `lengths`, each padded to its entry in `padded`, one after another in one row.

    Made by `plan_packing`. Plain numbers on the host: nothing here needs a device sync.
    """

    lengths: tuple[int, ...]
    padded: tuple[int, ...]
    cp_size: int = 1
    cp_rank: int = 0
    contiguous: bool = False  # a rank has one interval of the whole row, wherever sequences begin and end
    _kept: dict[tuple[str, str], Tensor] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def tokens(self) -> int:
        """Real tokens, all ranks together."""
        return sum(self.lengths)

    @cached_property
    def local_tokens(self) -> int:
        """Tokens of the packed row on this context-parallel rank, padding included."""
        return sum(self.padded) // self.cp_size

    @cached_property
    def places(self) -> Tensor:
        """`[padded tokens]`: where each token of the whole row stands when the rows of all ranks are joined."""
        return zigzag_places(self.bounds(torch.device("cpu")), sum(self.padded), 1 if self.contiguous else self.cp_size)

    @cached_property
    def _whole(self) -> Tensor:
        """`[3, padded tokens]` of the whole row: the real token (`tokens` for padding), its sequence, its position."""
        lengths, padded = (torch.tensor(numbers, dtype=torch.long) for numbers in (self.lengths, self.padded))
        sequence = torch.repeat_interleave(torch.arange(len(padded)), padded)
        position = torch.arange(len(sequence)) - (padded.cumsum(0) - padded)[sequence]
        real = (lengths.cumsum(0) - lengths)[sequence] + position
        return torch.stack([real.where(position < lengths[sequence], self.tokens), sequence, position])

    @cached_property
    def _local(self) -> Tensor:
        """The same of this rank's row."""
        return self._whole[:, held_by(self.places, self.cp_size, self.cp_rank)]

    def real_index(self, device: torch.device) -> Tensor:
        """`[local tokens]`: which real token stands at each place of this rank's row; `tokens` where padding does."""
        return self._on(device, "real", lambda: self._local[0])

    def sequence_index(self, device: torch.device) -> Tensor:
        """`[local tokens]`: which sequence each place of this rank's row belongs to; `len(lengths)` for padding."""
        return self._on(
            device, "sequence", lambda: self._local[1].where(self._local[0] < self.tokens, len(self.lengths))
        )

    def gathered_index(self, device: torch.device) -> Tensor:
        """`[real tokens]`: where each stands when the rows of all ranks are laid one after another."""
        return self._on(device, "gathered", lambda: self.places[self._whole[0] < self.tokens])

    def real_lengths(self, device: torch.device) -> Tensor:
        """`[sequences]`: lengths without padding."""
        return self._on(device, "lengths", lambda: torch.tensor(self.lengths))

    def bounds(self, device: torch.device) -> Tensor:
        """`[sequences + 1]` int32: padded cumulative lengths over all ranks, Megatron's `cu_seqlens`."""
        return self._on(device, "bounds", lambda: torch.tensor((0, *self.padded)).cumsum(0).int())

    def packed_seq_params(self, device: torch.device) -> Any:
        """Megatron's own description of this layout, for `model(..., packed_seq_params=...)`.

        Every field has the padded bounds: Megatron rolls MTP labels and splits rotary embeddings by
        `cu_seqlens_q`, and causal attention keeps the trailing padding of a sequence from its real tokens.
        """
        from megatron.core.packed_seq_params import PackedSeqParams

        bounds, longest = self.bounds(device), max(self.padded, default=0)
        return PackedSeqParams(
            qkv_format="thd",
            cu_seqlens_q=bounds,
            cu_seqlens_kv=bounds,
            cu_seqlens_q_padded=bounds,
            cu_seqlens_kv_padded=bounds,
            max_seqlen_q=longest,
            max_seqlen_kv=longest,
        )

    def position_ids(self, device: torch.device) -> Tensor:
        """`[1, local tokens]`: the position of each place in its own sequence."""
        return self._on(device, "position", lambda: self._local[2])[None]

    def _on(self, device: torch.device, name: str, make: Any) -> Tensor:
        key = (name, str(device))
        if key not in self._kept:
            self._kept[key] = make().to(device, non_blocking=True)
        return self._kept[key]


def plan_packing(
    lengths: Sequence[int], *, tp_size: int = 1, cp_size: int = 1, cp_rank: int = 0, token_multiple: int = 1
) -> PackedLayout:
    """Lay sequences of `lengths` into one row.

    Each is padded so that it splits into `2 * cp` zigzag chunks and every rank's row divides by `tp` (sequence
    parallelism). `token_multiple` is a further multiple for the row of one context-parallel rank, such as 16 for fp8,
    32 for mxfp8 or 128 for blockwise fp8 products; the last sequence gets that padding.
    """
    if min(tp_size, cp_size, token_multiple) < 1 or not 0 <= cp_rank < cp_size:
        raise ValueError(
            "expected tp_size, cp_size and token_multiple of at least 1 and 0 <= cp_rank < cp_size, got "
            f"{tp_size=}, {cp_size=}, {token_multiple=}, {cp_rank=}"
        )
    if any(length < 0 for length in lengths):
        raise ValueError(f"lengths: expected no negative numbers, got {list(lengths)}")
    unit = tp_size if cp_size == 1 else cp_size * math.lcm(tp_size, 2)
    padded = [-(-length // unit) * unit for length in lengths]
    if padded:
        row = cp_size * math.lcm(token_multiple, tp_size, 1 if cp_size == 1 else 2)
        padded[-1] += -sum(padded) % row
    return PackedLayout(tuple(lengths), tuple(padded), cp_size, cp_rank)


LayRow = Callable[..., PackedLayout]


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
            if not values.is_nested:
                raise ValueError(f"values: expected a tensor nested like the packer's batch, got {list(values.shape)}")
            offsets: Tensor = values.offsets()  # type: ignore[attr-defined]
            if offsets is not self.offsets:
                _check_lengths("values", offsets.diff(), list(self.layout.lengths))
            real = values.values()
        else:
            if values.is_nested or tuple(values.shape[:2]) != self.shape:
                expected = list(self.shape or ())
                shape = "nested" if values.is_nested else list(values.shape)
                raise ValueError(f"values: expected {expected} to match the attention mask, got {shape}")
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

    def packed_seq_params(self, device: torch.device) -> Any:
        """Megatron's description of the packed row."""
        return self.layout.packed_seq_params(device)


def pack_padded(
    attention_mask: Tensor, *, lengths: list[int] | None = None, lay_out: LayRow = plan_packing, **row: int
) -> Packer:
    """A packer for padded batches: `attention_mask` `[b, s]` is true where a token is real, on either side or anywhere.

    Reading the lengths needs one device sync; pass `lengths` if they are known. (On a CPU they are checked.) The
    other arguments, `tp_size`, `cp_size`, `cp_rank` and `token_multiple`, are those of `plan_packing`, which lays out
    the row unless another function is given.
    """
    if attention_mask.dim() != 2:
        raise ValueError(f"attention_mask: expected [batch, sequence], got {list(attention_mask.shape)}")
    real = attention_mask != 0
    layout = lay_out(_lengths("attention_mask", real.sum(-1), lengths), **row)
    # Stable sort: real tokens first, in their order. Unlike nonzero(), its size is known without asking the device.
    places = torch.argsort((~real).flatten(), stable=True)[: layout.tokens]
    return Packer(layout, places, (real.shape[0], real.shape[1]))


def pack_nested(
    batch: Tensor, *, lengths: list[int] | None = None, lay_out: LayRow = plan_packing, **row: int
) -> Packer:
    """A packer for batches that are nested like `batch` (`[b, ragged, ...]`, layout `torch.jagged`), likewise."""
    if not batch.is_nested or batch.layout != torch.jagged:
        raise ValueError("batch: expected a nested tensor with layout=torch.jagged")
    offsets: Tensor = batch.offsets()  # type: ignore[attr-defined]
    return Packer(lay_out(_lengths("batch", offsets.diff(), lengths), **row), offsets=offsets)


def _lengths(name: str, counted: Tensor, given: list[int] | None) -> list[int]:
    if given is None:
        return [int(n) for n in counted.tolist()]
    _check_lengths(name, counted, given)
    return given


def _check_lengths(name: str, counted: Tensor, lengths: list[int]) -> None:
    """Raise for wrong lengths of the same total, which would mix the sequences. Only checked on a CPU."""
    if len(counted) != len(lengths) or (counted.device.type == "cpu" and counted.tolist() != lengths):
        raise ValueError(f"{name}: has sequences of {counted.tolist()} tokens, but lengths is {lengths}")


def sum_per_sequence(
    row: Tensor,
    layout: PackedLayout,
    *,
    mask: Tensor | None = None,
    cp_group: ProcessGroup | None = None,
    gradient: Gradient = "own",
) -> Tensor:
    """`[1, local tokens]` (log-probs, losses) to `[sequences]` sums; padding is not counted.

    `mask` `[1, local tokens]` weights the tokens. With `cp_group` the sums run over all context-parallel ranks;
    `gradient` as in `gather_shares`.
    """
    if row.shape != (1, layout.local_tokens):
        raise ValueError(f"row: expected [1, {layout.local_tokens}], got {list(row.shape)}")
    if mask is not None and mask.numel() != layout.local_tokens:
        raise ValueError(f"mask: expected [1, {layout.local_tokens}], got {list(mask.shape)}")
    values = row[0] if mask is None else row[0] * mask.reshape(-1)
    if values.is_floating_point():  # 16 bits cannot count beyond 256
        values = values.to(torch.promote_types(values.dtype, torch.float32))
    sums = values.new_zeros(len(layout.lengths) + 1).index_add(0, layout.sequence_index(row.device), values)
    return sum_over_ranks(sums[:-1], cp_group, gradient)


def mean_per_sequence(
    row: Tensor,
    layout: PackedLayout,
    *,
    mask: Tensor | None = None,
    cp_group: ProcessGroup | None = None,
    gradient: Gradient = "own",
) -> Tensor:
    """Like `sum_per_sequence`, divided by the number (or the weight) of the tokens; 0 for a sequence without any."""
    ones = torch.ones_like(row)
    weight = sum_per_sequence(ones, layout, mask=mask, cp_group=cp_group)
    total = sum_per_sequence(row, layout, mask=mask, cp_group=cp_group, gradient=gradient)
    return total / weight.where(weight != 0, 1)
