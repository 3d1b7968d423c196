from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    try:  # Megatron Core 0.18 and later: on its output_processor hook
        from mcore_unpatch.compat.verl.model_forward_1f1b_overlap import (
            gptmodel_forward_1f1b_overlap,
        )
    except ImportError:
        from verl.models.mcore.model_forward_1f1b_overlap import gptmodel_forward_1f1b_overlap

    Forward = Callable[..., gptmodel_forward_1f1b_overlap]
