"""The arguments of a vision model besides tokens."""

from collections.abc import Mapping
from typing import Any

import torch
from megatron.core import parallel_state
from torch import Tensor

_NAMES = ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")


def vision_arguments(multi_modal_inputs: Mapping[str, Tensor] | None, device: torch.device) -> dict[str, Any]:
    """The images and videos of the batch, as keywords of the model."""
    given = multi_modal_inputs or {}
    return {name: given[name].to(device) for name in _NAMES if name in given}


def vision_tokens(nested: Tensor, pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Padded tokens `[b, s]` and their mask, with `s` rounded up for tensor and context parallelism."""
    tp, cp = parallel_state.get_tensor_model_parallel_world_size(), parallel_state.get_context_parallel_world_size()
    unit = tp if cp == 1 else 2 * tp * cp
    lengths = nested.offsets().diff()  # type: ignore[attr-defined]
    longest = int(lengths.max())
    shape = (len(lengths), -(-longest // unit) * unit)
    tokens = torch.nested.to_padded_tensor(nested, pad_token_id, shape)
    return tokens, torch.arange(shape[1], device=tokens.device) < lengths[:, None]
