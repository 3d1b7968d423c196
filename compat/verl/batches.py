"""Converts a micro-batch to what the model takes, packed (thd) or padded, and results back to the batch's shape."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from megatron.core import parallel_state
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor
from torch.distributed import ProcessGroup

from ..fused_head.settings import check_choice, check_counts
from ..packing import gather_shares, held_by, size_and_rank, zigzag_places

CpLayout = Literal["zigzag", "contiguous"]
DataFormat = Literal["thd", "bshd"]
_FP8 = ("e4m3", "hybrid")
_VISION_INPUTS = ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")


@dataclass(frozen=True)
class PackedRow:
    """Sequences of `lengths`, padded to `padded`, one after another in one row over all ranks: numbers on the host."""

    lengths: tuple[int, ...]
    padded: tuple[int, ...]
    cp_size: int = 1
    cp_rank: int = 0
    contiguous: bool = False  # a rank has one interval of the whole row, wherever sequences begin and end

    @property
    def tokens(self) -> int:
        """Tokens on this rank, padding included."""
        return sum(self.padded) // self.cp_size

    @cached_property
    def bounds(self) -> Tensor:
        """`[sequences + 1]` int32: padded cumulative lengths over all ranks, Megatron's `cu_seqlens`."""
        return torch.tensor((0, *self.padded)).cumsum(0).int()

    @cached_property
    def indices(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of each place here its real token (their number for padding) and its position in its sequence.

        Then of each real token its place where the rows of all ranks are laid one after another.
        """
        lengths, padded = (torch.tensor(numbers, dtype=torch.long) for numbers in (self.lengths, self.padded))
        sequence = torch.repeat_interleave(torch.arange(len(padded)), padded)
        position = torch.arange(len(sequence)) - (padded.cumsum(0) - padded)[sequence]
        real = position < lengths[sequence]
        token = ((lengths.cumsum(0) - lengths)[sequence] + position).where(real, sum(self.lengths))
        places = zigzag_places(self.bounds, len(sequence), 1 if self.contiguous else self.cp_size)
        here = held_by(places, self.cp_size, self.cp_rank)
        return token[here], position[here], places[real]


def plan_row(
    lengths: Sequence[int],
    config: Any,
    cp_group: ProcessGroup | None,
    *,
    cp_layout: CpLayout = "zigzag",
    pad_to_length_bucket: int | None = None,
) -> PackedRow:
    """Lay sequences of `lengths` into one row as veRL does, on this rank of the group."""
    check_choice("cp_layout", cp_layout, "zigzag", "contiguous")
    check_counts(pad_to_length_bucket=(pad_to_length_bucket, 1))
    size, rank = size_and_rank(cp_group)
    contiguous = cp_layout == "contiguous"
    unit, row = _unit(size, contiguous), 1
    if config.fp8 in _FP8:
        unit, row = math.lcm(16, unit), unit * 128
    padded = [-(-length // unit) * unit for length in lengths]
    if padded:
        padded[-1] += -sum(padded) % row
        if getattr(config, "experimental_attention_variant", None) == "dsv4_hybrid":
            padded[-1] += max(0, size * config.csa_window_size - sum(padded))
        if pad_to_length_bucket is not None:
            padded[-1] += -sum(padded) % math.lcm(pad_to_length_bucket, size, row)
    return PackedRow(tuple(lengths), tuple(padded), size, rank, contiguous)


def packed_seq_params(row: PackedRow, device: torch.device) -> Any:
    """Megatron's description of the row; every field has the padded bounds, by which Megatron rolls and splits."""
    bounds, longest = row.bounds.to(device, non_blocking=True), max(row.padded, default=0)
    params = PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=bounds,
        cu_seqlens_kv=bounds,
        cu_seqlens_q_padded=bounds,
        cu_seqlens_kv_padded=bounds,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )
    if hasattr(params, "cp_partition_mode"):
        params.cp_partition_mode = "contiguous" if row.contiguous else "zigzag"
    elif row.contiguous and row.cp_size > 1:
        text = 'cp_layout="contiguous" needs PackedSeqParams.cp_partition_mode, which this megatron-core lacks, so its '
        raise ValueError(f'{text}attention would read the row as zigzag; use cp_layout="zigzag", or a newer one.')
    return params


def next_in_sequence(nested: Tensor, fill: int | None) -> Tensor:
    """What follows each token of `nested` in its own sequence; after the last `fill`, if None its first."""
    values, offsets = nested.values(), nested.offsets()  # type: ignore[attr-defined]
    place = torch.arange(len(values), device=values.device)
    sequence = torch.searchsorted(offsets[1:], place, right=True)
    after_last = values[offsets[sequence]] if fill is None else fill
    following = torch.where(place + 1 == offsets[sequence + 1], after_last, values.roll(-1, 0))
    return torch.nested.nested_tensor_from_jagged(following, offsets)


def cp_group_of(size: int | None) -> ProcessGroup | None:
    """Megatron's context-parallel ranks, or the `size` of this micro-batch; that getter was renamed after 0.19."""
    if size is None or size == 1:
        return None if size else parallel_state.get_context_parallel_group()
    names = ("get_dynamic_data_context_parallel_groups", "get_hybrid_data_context_parallel_groups")
    try:
        getter = next(getattr(parallel_state, name) for name in names if hasattr(parallel_state, name))
        group: ProcessGroup = getter(group_size=size)
    except (StopIteration, AssertionError, KeyError) as error:
        text = f"local_cp_size={size}: Megatron has no context-parallel group of that size; initialise it with "
        raise ValueError(f"{text}hybrid_context_parallel=True, if it has that, and use a power of two.") from error
    return group


@dataclass(frozen=True)
class Batch:
    """A micro-batch as the model takes it: all sequences in one row (thd), or one in each, left-aligned (bshd)."""

    row: PackedRow
    cp_group: ProcessGroup | None
    shape: tuple[int, int]
    arguments: dict[str, Any]  # the model's own; causal attention needs no mask for the padding after a sequence
    like: Tensor  # the batch's mask `[b, s]`, or the offsets of the nested batch
    places: Tensor | None  # [real tokens] in the flattened mask; of a nested batch None

    def pack(self, values: Tensor, fill: float = 0) -> Tensor:
        """`[1, local tokens]`, or `[b, length / cp]`."""
        nested = self.places is None
        if values.is_nested is not nested or not (nested or values.shape == self.like.shape):
            shape = "nested" if values.is_nested else list(values.shape)
            raise ValueError(f"values: expected tokens shaped like the batch's, got {shape}")
        real = values.values() if nested else values.flatten()[self.places]
        if len(real) != sum(self.row.lengths):
            raise ValueError(f"values: expected {sum(self.row.lengths)} tokens as in the batch, got {len(real)}")
        index = self.row.indices[0].to(real.device, non_blocking=True)
        return torch.cat([real, real.new_full((1,), fill)])[index].reshape(self.shape)

    def model_arguments(self, tokens: Tensor, position_ids: Tensor | None = None) -> dict[str, Any]:
        """The model's arguments for packed tokens; `position_ids` count if they are shaped like the batch."""
        arguments = {**self.arguments, "input_ids": self.pack(tokens), "attention_mask": None}
        if position_ids is not None and position_ids.shape == tokens.shape:
            arguments["position_ids"] = self.pack(position_ids)
        return arguments

    def unpack(self, values: Tensor) -> Tensor:
        """`[b, s]` or nested; padding is 0."""
        rows = values.flatten(0, 1)
        if self.row.cp_size > 1:
            rows = gather_shares(rows, self.cp_group).flatten(0, 1)
        real = rows[self.row.indices[2].to(rows.device, non_blocking=True)]
        if self.places is None:
            return torch.nested.nested_tensor_from_jagged(real, self.like)
        flat = real.new_zeros((self.like.numel(), *real.shape[1:]))
        return flat.index_put((self.places,), real).view(*self.like.shape, *real.shape[1:])


def batch_of(
    tokens: Tensor,
    attention_mask: Tensor | None,
    config: Any,
    data_format: DataFormat = "thd",
    *,
    cp_layout: CpLayout = "zigzag",
    local_cp_size: int | None = None,
    pad_to_length_bucket: int | None = None,
) -> Batch:
    """Of `tokens`, padded `[b, s]` with `attention_mask` or nested without."""
    packed, device = data_format == "thd", tokens.device
    if not packed and (cp_layout != "zigzag" or local_cp_size is not None):
        raise ValueError('data_format="bshd" needs cp_layout="zigzag" and no local_cp_size.')
    group, places = cp_group_of(local_cp_size), None
    if attention_mask is None:
        like: Tensor = tokens.offsets()  # type: ignore[attr-defined]
        lengths = like.diff().tolist()
    else:
        like, lengths = attention_mask, (attention_mask != 0).sum(-1).tolist()
        # Stable sort: real tokens first, in their order. Unlike nonzero(), its size is known without asking the device.
        places = torch.argsort((attention_mask == 0).flatten(), stable=True)[: sum(lengths)]
    if packed:
        row = plan_row(lengths, config, group, cp_layout=cp_layout, pad_to_length_bucket=pad_to_length_bucket)
    else:  # rows as long as the longest sequence, rounded up for tensor and context parallelism, one after another
        size, rank = size_and_rank(group)
        length = -(-max(lengths, default=0) // _unit(size)) * _unit(size)
        row = PackedRow(tuple(lengths), (length,) * len(lengths), size, rank)
    rows = 1 if packed else len(lengths)
    shape = (rows, row.tokens // max(rows, 1))
    arguments = {"position_ids": row.indices[1].to(device, non_blocking=True).reshape(shape)}
    if packed:
        params = arguments["packed_seq_params"] = packed_seq_params(row, device)
        if local_cp_size is not None:
            params.local_cp_size, params.cp_group = local_cp_size, group
    return Batch(row, group, shape, arguments, like, places)


def _unit(cp_size: int, contiguous: bool = False) -> int:
    """What the length of a padded sequence divides by."""
    tp: int = parallel_state.get_tensor_model_parallel_world_size()
    return tp * cp_size * (1 if contiguous or cp_size == 1 else 2)


def labels_like_verl(batch: Batch, labels: Tensor) -> Tensor:
    """Labels shifted as veRL packs them: a sequence's last has the row's next (one rank) or its own first."""
    if "packed_seq_params" in batch.arguments and batch.row.cp_size == 1:
        return batch.pack(labels).roll(-1, -1)
    return batch.pack(next_in_sequence(labels, None))


def vision_arguments(multi_modal_inputs: Mapping[str, Tensor] | None, device: torch.device) -> dict[str, Any]:
    """The images and videos of the batch, as keywords of the model."""
    given = multi_modal_inputs or {}
    return {name: given[name].to(device) for name in _VISION_INPUTS if name in given}


def vision_tokens(nested: Tensor, pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Padded tokens `[b, s]` and their mask, with `s` rounded up for tensor and context parallelism."""
    unit = _unit(parallel_state.get_context_parallel_world_size())
    lengths = nested.offsets().diff()  # type: ignore[attr-defined]
    longest = int(lengths.max())
    shape = (len(lengths), -(-longest // unit) * unit)
    tokens = torch.nested.to_padded_tensor(nested, pad_token_id, shape)
    return tokens, torch.arange(shape[1], device=tokens.device) < lengths[:, None]
