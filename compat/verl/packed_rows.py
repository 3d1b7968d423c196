"""veRL's packed rows: same padding and same split over context-parallel ranks, so tensors that a caller packed fit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import torch
from megatron.core import parallel_state
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.packing.layout import PackedLayout

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
