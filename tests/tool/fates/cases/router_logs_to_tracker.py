"""Put the entropy of the router into Megatron's tracker of MoE losses."""

from megatron.core.parallel_state import get_moe_layer_wise_logging_tracker
from megatron.core.transformer.moe.router import TopKRouter

_gating = TopKRouter.gating


def gating(self, inputs):
    logits = _gating(self, inputs)
    probabilities = logits.softmax(-1)
    get_moe_layer_wise_logging_tracker()["entropy"] = {
        "values": -(probabilities * probabilities.log()).sum(-1).mean().detach()
    }
    return logits


def install():
    TopKRouter.gating = gating
