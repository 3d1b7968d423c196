"""Converts a micro-batch to what the model takes, packed (thd) or padded, and results back to the batch's shape."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat.packing.gather import gather_sequence
from mcore_unpatch.compat.packing.layout import PackedLayout
from mcore_unpatch.compat.packing.pack import LayRow, Packer, nested_packer, padded_packer
from mcore_unpatch.compat.packing.zigzag import zigzag_split
from mcore_unpatch.compat.verl.packed_rows import CpLayout, Ranks, next_in_sequence, packed_seq_params, plan_row

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
