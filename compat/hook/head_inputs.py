"""A processor for code that multiplies by the LM head itself: it returns the inputs of the head, not its output."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mcore_unpatch.compat.hook.call import HookCall
from mcore_unpatch.compat.hook.output_layer import check_head, lent_weight
from mcore_unpatch.compat.hook.wake import wake


class HeadInputs:
    """Returns `[b, s, h]`: the hidden states that the output layer would receive; its weight is in `.weight`.

    This is what a model returns if `output_layer.forward` is replaced by a function that returns its input: MuP's
    factor is applied as to logits, sequence parallelism leaves this rank's share `[b, s / tp, h]`, and the dtype is
    that of the hidden states. Nothing is gathered, and gradients are not summed over tensor-parallel ranks: the code
    that multiplies must do both. The MTP loss is Megatron's own.

    `.weight` is this rank's shard `[vocab / tp, h]`, tied or not, from the last call, or None before the first; `keep`
    is called with it in every call. With gradient accumulation fusion it is a view of the parameter whose gradient goes
    to `main_grad`, because Megatron then ignores the parameter's `.grad`. `attach` treats two with the same `keep` as
    equal: the first one attached runs.
    """

    def __init__(self, keep: Callable[[Tensor], None] | None = None) -> None:
        self.keep = keep
        self.weight: Tensor | None = None

    def __call__(self, **keywords: Any) -> Tensor:
        """Return the layer's input. Labels only serve the MTP loss; without MTP layers they raise a ValueError."""
        call = HookCall.of(keywords)
        if call.labels is not None and not call.config.mtp_num_layers:
            raise ValueError(
                "labels: HeadInputs returns hidden states and no loss, and this model has no MTP layers to use labels; "
                "leave them out (other processors take them from HookContext(labels=...)), or use TokenLoss."
            )
        check_head(call)
        wake(call)
        self.weight = lent_weight(call)
        if self.keep is not None:
            self.keep(self.weight)
        return call.finish(call.hidden_states)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeadInputs) and self.keep == other.keep

    def __hash__(self) -> int:
        return hash((HeadInputs, self.keep))

    def __repr__(self) -> str:
        return f"HeadInputs(keep={self.keep!r})"
