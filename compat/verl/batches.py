"""Converts a micro-batch to what the model takes, packed (thd) or padded, and results back to the batch's shape."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any, Literal

import torch
from megatron.core import parallel_state
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.packing.gather import gather_sequence
from mcore_unpatch.compat.packing.layout import PackedLayout, zigzag_split
from mcore_unpatch.compat.packing.pack import LayRow, Packer, nested_packer, padded_packer

CpLayout = Literal["zigzag", "contiguous"]
_FP8 = ("e4m3", "hybrid")


@dataclass(frozen=True)
class Ranks:
    """The context-parallel ranks of one micro-batch; `local_size` where they are chosen for it (dynamic CP)."""

    group: ProcessGroup | None
    size: int
    rank: int
    local_size: int | None = None

    @classmethod
    def of_call(cls, local_cp_size: int | None) -> "Ranks":
        """Megatron's ranks, or the dynamic group of `local_cp_size`."""
        if local_cp_size is None:
            group = parallel_state.get_context_parallel_group()
        elif local_cp_size == 1:
            return cls(None, 1, 0, 1)
        else:
            group = _dynamic_group(local_cp_size)
        return cls(group, group.size(), group.rank(), local_cp_size)


class ContiguousLayout(PackedLayout):
    """Each rank has one interval of the whole row, regardless of where sequences begin and end."""

    @property
    def _whole(self) -> PackedLayout:
        return PackedLayout(self.lengths, self.padded)

    @property
    def _share(self) -> slice:
        return slice(self.cp_rank * self.local_tokens, (self.cp_rank + 1) * self.local_tokens)

    @cached_property
    def _local(self) -> tuple[Tensor, Tensor]:
        places, sequences = self._whole._local
        return places[self._share], sequences[self._share]

    def _invert(self) -> Tensor:
        return self._whole._invert()

    def position_ids(self, device: torch.device) -> Tensor:
        """`[1, local tokens]`: the position of each place in its own sequence."""
        return self._whole.position_ids(device)[:, self._share]


def plan_row(
    lengths: Sequence[int],
    config: Any,
    ranks: Ranks,
    *,
    cp_layout: CpLayout = "zigzag",
    pad_to_length_bucket: int | None = None,
) -> PackedLayout:
    """Lay sequences of `lengths` into one row as veRL does, on this rank of `ranks`."""
    if cp_layout not in ("zigzag", "contiguous"):
        raise ValueError(f'cp_layout must be "zigzag" or "contiguous", not {cp_layout!r}.')
    if pad_to_length_bucket is not None and pad_to_length_bucket <= 0:
        raise ValueError(f"pad_to_length_bucket must be a positive number, not {pad_to_length_bucket}.")
    zigzag = cp_layout == "zigzag"
    unit = parallel_state.get_tensor_model_parallel_world_size() * ranks.size * (2 if zigzag and ranks.size > 1 else 1)
    row = 1
    if config.fp8 in _FP8:
        unit, row = math.lcm(16, unit), unit * 128
    padded = [-(-length // unit) * unit for length in lengths]
    if padded:
        padded[-1] += -sum(padded) % row
        if getattr(config, "experimental_attention_variant", None) == "dsv4_hybrid":
            padded[-1] += max(0, ranks.size * config.csa_window_size - sum(padded))
        if pad_to_length_bucket is not None:
            padded[-1] += -sum(padded) % math.lcm(pad_to_length_bucket, ranks.size, row)
    kind = PackedLayout if zigzag or ranks.size == 1 else ContiguousLayout
    return kind(tuple(lengths), tuple(padded), ranks.size, ranks.rank)


def packed_seq_params(layout: PackedLayout, ranks: Ranks, cp_layout: CpLayout, device: torch.device) -> Any:
    """Megatron's description of the row, with dynamic ranks and the layout if this Megatron has fields for them."""
    params = layout.packed_seq_params(device)
    if ranks.local_size is not None:
        params.local_cp_size, params.cp_group = ranks.local_size, ranks.group
    if "cp_partition_mode" in {field.name for field in fields(PackedSeqParams)}:
        params.cp_partition_mode = cp_layout
    elif cp_layout == "contiguous" and ranks.size > 1:
        raise ValueError(
            'cp_layout="contiguous" needs PackedSeqParams.cp_partition_mode, which this megatron-core lacks, so its '
            'attention would read the row as zigzag; use cp_layout="zigzag", or a megatron-core that has the field.'
        )
    return params


def next_in_sequence(nested: Tensor, fill: int | None) -> Tensor:
    """Nested like `nested`: what follows each token in its own sequence; after the last `fill`, if None its first."""
    values, offsets = nested.values(), nested.offsets()  # type: ignore[attr-defined]
    starts = torch.zeros(len(values) + 1, dtype=torch.bool, device=values.device)
    starts[offsets] = True
    following = values.roll(-1, 0)
    if fill is None:
        full = offsets.diff() > 0
        following[offsets[1:][full] - 1] = values[offsets[:-1][full]]
    else:
        following = following.masked_fill(starts[1:], fill)
    return torch.nested.nested_tensor_from_jagged(following, offsets)


def _dynamic_group(size: int) -> ProcessGroup:
    """The group of `size` ranks for this micro-batch; its getter was renamed after megatron-core 0.19."""
    for name in ("get_dynamic_data_context_parallel_groups", "get_hybrid_data_context_parallel_groups"):
        getter = getattr(parallel_state, name, None)
        if getter is not None:
            try:
                group: ProcessGroup = getter(group_size=size)
            except (AssertionError, KeyError) as error:
                raise ValueError(
                    f"local_cp_size={size}: Megatron has no context-parallel group of that size; initialise Megatron "
                    "with hybrid_context_parallel=True, and use a power of two."
                ) from error
            return group
    raise ValueError(f"local_cp_size={size}: this megatron-core has no dynamic context-parallel groups; leave it out.")


DataFormat = Literal["thd", "bshd"]
_VISION_INPUTS = ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")


@dataclass
class PackedBatch:
    """All sequences in one row. `arguments` are the `position_ids` and `packed_seq_params` of the model's call."""

    packer: Packer
    ranks: Ranks
    arguments: dict[str, Any] = field(default_factory=dict)

    def pack(self, values: Tensor, fill: float = 0) -> Tensor:
        """`[1, local tokens]`."""
        return self.packer.pack(values, fill)

    def unpack(self, values: Tensor) -> Tensor:
        """`[b, s]` or nested; padding is 0."""
        return self.packer.unpack(values, cp_group=self.ranks.group)


@dataclass
class PaddedBatch:
    """One sequence per row, left-aligned: causal attention then needs no mask for the padding after it."""

    packer: Packer
    ranks: Ranks
    length: int
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def _places(self) -> Tensor:
        """Where each real token of the batch stands in `[b, length]`, flattened."""
        lengths = self.packer.layout.lengths
        places = [torch.arange(n) + row * self.length for row, n in enumerate(lengths)]
        return torch.cat(places) if places else torch.empty(0, dtype=torch.long)

    def pack(self, values: Tensor, fill: float = 0) -> Tensor:
        """`[b, length / cp]`."""
        real = self.packer.pack(values)[0]
        rows = len(self.packer.layout.lengths)
        whole = real.new_full((rows * self.length, *real.shape[1:]), fill)
        whole = whole.index_put((self._places.to(real.device),), real).view(rows, self.length, *real.shape[1:])
        return zigzag_split(whole, self.ranks.size, self.ranks.rank).contiguous()

    def unpack(self, values: Tensor) -> Tensor:
        """`[b, s]` or nested; padding is 0."""
        whole = values if self.ranks.group is None else gather_sequence(values, self.ranks.group)
        return self.packer.unpack(whole.flatten(0, 1)[self._places.to(values.device)][None])


Batch = PackedBatch | PaddedBatch


def batch_of(
    tokens: Tensor, attention_mask: Tensor | None, config: Any, data_format: DataFormat = "thd", **row: Any
) -> Batch:
    """A batch in this format; `row` are options of `packed_batch`."""
    if data_format == "thd":
        return packed_batch(tokens, attention_mask, config, **row)
    if row.get("cp_layout", "zigzag") != "zigzag" or row.get("local_cp_size") is not None:
        raise ValueError('data_format="bshd" needs cp_layout="zigzag" and no local_cp_size.')
    return padded_batch(tokens, attention_mask)


def packed_batch(
    tokens: Tensor,
    attention_mask: Tensor | None,
    config: Any,
    *,
    cp_layout: CpLayout = "zigzag",
    local_cp_size: int | None = None,
    pad_to_length_bucket: int | None = None,
) -> PackedBatch:
    """A packed row of `tokens`, padded `[b, s]` with `attention_mask` or nested without."""
    ranks = Ranks.of_call(local_cp_size)
    layout_of = partial(
        plan_row, config=config, ranks=ranks, cp_layout=cp_layout, pad_to_length_bucket=pad_to_length_bucket
    )
    packer = _packer(tokens, attention_mask, layout_of)
    device = tokens.device
    arguments = {
        "position_ids": packer.layout.position_ids(device),
        "packed_seq_params": packed_seq_params(packer.layout, ranks, cp_layout, device),
    }
    return PackedBatch(packer, ranks, arguments)


def padded_batch(tokens: Tensor, attention_mask: Tensor | None) -> PaddedBatch:
    """Rows of `tokens`, as long as the longest sequence, rounded up for tensor and context parallelism."""
    ranks = Ranks.of_call(None)
    packer = _packer(tokens, attention_mask, _unpadded)
    tp = parallel_state.get_tensor_model_parallel_world_size()
    unit = tp if ranks.size == 1 else 2 * tp * ranks.size
    lengths = packer.layout.lengths
    length = -(-max(lengths, default=0) // unit) * unit
    positions = torch.arange(length, device=tokens.device).expand(len(lengths), length)
    arguments = {"position_ids": zigzag_split(positions, ranks.size, ranks.rank).contiguous()}
    return PaddedBatch(packer, ranks, length, arguments)


def _packer(tokens: Tensor, attention_mask: Tensor | None, row: LayRow) -> Packer:
    if attention_mask is None:
        return nested_packer(tokens, row, name="input_ids")
    return padded_packer(attention_mask, row)


def _unpadded(lengths: list[int]) -> PackedLayout:
    return PackedLayout(tuple(lengths), tuple(lengths))


def labels_like_verl(batch: Batch, labels: Tensor) -> Tensor:
    """Labels shifted one to the left as veRL packs them: a sequence's last token has a label too.

    On one rank and packed it is the next token of the row; otherwise it is the first of the sequence, as in 0.7 and
    0.8. In 0.9 it is 0 over several ranks if the sequence is padded.
    """
    if isinstance(batch, PackedBatch) and batch.ranks.size == 1:
        return batch.pack(labels).roll(-1, -1)
    return batch.pack(next_in_sequence(labels, None))


def vision_arguments(multi_modal_inputs: Mapping[str, Tensor] | None, device: torch.device) -> dict[str, Any]:
    """The images and videos of the batch, as keywords of the model."""
    given = multi_modal_inputs or {}
    return {name: given[name].to(device) for name in _VISION_INPUTS if name in given}


def vision_tokens(nested: Tensor, pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Padded tokens `[b, s]` and their mask, with `s` rounded up for tensor and context parallelism."""
    tp, cp = parallel_state.get_tensor_model_parallel_world_size(), parallel_state.get_context_parallel_world_size()
    unit = tp if cp == 1 else 2 * tp * cp
    lengths = nested.offsets().diff()  # type: ignore[attr-defined]
    longest = int(lengths.max())
    shape = (len(lengths), -(-longest // unit) * unit)
    tokens = torch.nested.to_padded_tensor(nested, pad_token_id, shape)
    return tokens, torch.arange(shape[1], device=tokens.device) < lengths[:, None]
