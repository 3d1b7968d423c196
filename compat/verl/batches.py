"""Converts a micro-batch to what the model takes, packed (thd) or padded, and results back to the batch's shape."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

import torch
from megatron.core import parallel_state
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.settings import check_choice, check_count
from mcore_unpatch.compat.packing.gather import size_and_rank
from mcore_unpatch.compat.packing.layout import PackedLayout, Packer, pack_nested, pack_padded

CpLayout = Literal["zigzag", "contiguous"]
_FP8 = ("e4m3", "hybrid")


def plan_row(
    lengths: Sequence[int],
    config: Any,
    cp_group: ProcessGroup | None,
    *,
    cp_layout: CpLayout = "zigzag",
    pad_to_length_bucket: int | None = None,
) -> PackedLayout:
    """Lay sequences of `lengths` into one row as veRL does, on this rank of the group."""
    check_choice("cp_layout", cp_layout, "zigzag", "contiguous")
    check_count("pad_to_length_bucket", pad_to_length_bucket, 1)
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
    return PackedLayout(tuple(lengths), tuple(padded), size, rank, contiguous)


def packed_seq_params(layout: PackedLayout, device: torch.device) -> Any:
    """Megatron's description of the row, with its layout if this Megatron has a field for it."""
    params = layout.packed_seq_params(device)
    if "cp_partition_mode" in {field.name for field in fields(PackedSeqParams)}:
        params.cp_partition_mode = "contiguous" if layout.contiguous else "zigzag"
    elif layout.contiguous and layout.cp_size > 1:
        raise ValueError(
            'cp_layout="contiguous" needs PackedSeqParams.cp_partition_mode, which this megatron-core lacks, so its '
            'attention would read the row as zigzag; use cp_layout="zigzag", or a megatron-core that has the field.'
        )
    return params


def next_in_sequence(nested: Tensor, fill: int | None) -> Tensor:
    """Nested like `nested`: what follows each token in its own sequence; after the last `fill`, if None its first."""
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


@dataclass(frozen=True)
class Batch:
    """A micro-batch as the model takes it: all sequences in one row (thd), or one in each, left-aligned (bshd).

    Causal attention needs no mask for the padding after a sequence. `arguments` are the model's own.
    """

    packer: Packer
    cp_group: ProcessGroup | None
    shape: tuple[int, int]
    arguments: dict[str, Any]

    def pack(self, values: Tensor, fill: float = 0) -> Tensor:
        """`[1, local tokens]`, or `[b, length / cp]`."""
        row = self.packer.pack(values, fill)
        return row.reshape(*self.shape, *row.shape[2:])

    def unpack(self, values: Tensor) -> Tensor:
        """`[b, s]` or nested; padding is 0."""
        return self.packer.unpack(values.flatten(0, 1)[None], cp_group=self.cp_group)


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
    packed = data_format == "thd"
    if not packed and (cp_layout != "zigzag" or local_cp_size is not None):
        raise ValueError('data_format="bshd" needs cp_layout="zigzag" and no local_cp_size.')
    group = cp_group_of(local_cp_size)
    layout_of = partial(_plan_rows, cp_group=group)
    if packed:
        layout_of = partial(
            plan_row, config=config, cp_group=group, cp_layout=cp_layout, pad_to_length_bucket=pad_to_length_bucket
        )
    if attention_mask is None:
        packer = pack_nested(tokens, lay_out=layout_of)
    else:
        packer = pack_padded(attention_mask, lay_out=layout_of)
    layout, device = packer.layout, tokens.device
    rows = 1 if packed else len(layout.lengths)
    shape = (rows, layout.local_tokens // max(rows, 1))
    arguments = {"position_ids": layout.position_ids(device).reshape(shape)}
    if packed:
        params = arguments["packed_seq_params"] = packed_seq_params(layout, device)
        if local_cp_size is not None:
            params.local_cp_size, params.cp_group = local_cp_size, group
    return Batch(packer, group, shape, arguments)


def _plan_rows(lengths: Sequence[int], cp_group: ProcessGroup | None) -> PackedLayout:
    """Rows as long as the longest sequence, rounded up for tensor and context parallelism, one after another."""
    size, rank = size_and_rank(cp_group)
    length = -(-max(lengths, default=0) // _unit(size)) * _unit(size)
    return PackedLayout(tuple(lengths), (length,) * len(lengths), size, rank)


def _unit(cp_size: int, contiguous: bool = False) -> int:
    """What the length of a padded sequence divides by."""
    tp: int = parallel_state.get_tensor_model_parallel_world_size()
    return tp * cp_size * (1 if contiguous or cp_size == 1 else 2)


def labels_like_verl(batch: Batch, labels: Tensor) -> Tensor:
    """Labels shifted one to the left as veRL packs them: a sequence's last token has a label too.

    On one rank and packed it is the next token of the row; otherwise it is the first of the sequence, as in 0.7 and
    0.8. In 0.9 it is 0 over several ranks if the sequence is padded.
    """
    if "packed_seq_params" in batch.arguments and batch.packer.layout.cp_size == 1:
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
