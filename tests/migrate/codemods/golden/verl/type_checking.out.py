from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcore_unpatch.compat.verl.model_forward_1f1b_overlap import gptmodel_forward_1f1b_overlap

    Forward = Callable[..., gptmodel_forward_1f1b_overlap]
