"""The processor for code that multiplies with the LM head itself: the head's two inputs instead of its product."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mcore_unpatch.compat.hook.call import HookCall
from mcore_unpatch.compat.hook.output_layer import check_head, lent_weight
from mcore_unpatch.compat.hook.wake import wake


class HeadInputs:
    """`[b, s, h]`: the hidden states that the output layer would be given; its weight is in `.weight`.

    What the model returns where `output_layer.forward` is replaced by one that hands its input through: MuP's scaling
    is in it as in logits, under sequence parallelism it is this rank's share `[b, s / tp, h]`, and its dtype is that of
    the hidden states. Nothing is gathered, and nobody adds up the parts of the gradient that tensor-parallel ranks
    find: that is left to the code that multiplies. The MTP loss is Megatron's own.

    `.weight` is this rank's shard `[vocab / tp, h]`, tied or not, of the last call, None before it; `keep` is given it
    in every call. With gradient accumulation fusion it is a view of the parameter, through which the gradient goes to
    `main_grad`: Megatron ignores the parameter's `.grad` there. Two with the same `keep` are the same to `attach`: the
    one attached first is then the one that runs.
    """

    def __init__(self, keep: Callable[[Tensor], None] | None = None) -> None:
        self.keep = keep
        self.weight: Tensor | None = None

    def __call__(self, **keywords: Any) -> Tensor:
        """Take what the layer would multiply; labels are for the MTP loss alone, and refused where there is none."""
        call = HookCall.of(keywords)
        if call.labels is not None and not call.config.mtp_num_layers:
            raise ValueError(
                "labels: HeadInputs gives hidden states and no loss, and this model has no MTP layers that would use "
                "labels. Leave them out (other processors take them from HookContext(labels=...)), or use TokenLoss"
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
