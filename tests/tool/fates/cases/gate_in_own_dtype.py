"""Gate in the precision of the weight, whatever the configuration says."""

from megatron.core.transformer.moe.moe_utils import router_gating_linear
from megatron.core.transformer.moe.router import TopKRouter


def gating(self, input):  # noqa: A002 - Megatron's name
    return router_gating_linear(input, self.weight, self.weight.dtype)


TopKRouter.gating = gating
