"""MoE layers that count their calls, in the specs of GPT models."""

from megatron.core.models.gpt import moe_module_specs
from megatron.core.transformer.moe.moe_layer import MoELayer


class CountingMoELayer(MoELayer):
    calls = 0

    def forward(self, *args, **kwargs):
        self.calls += 1
        return super().forward(*args, **kwargs)


moe_module_specs.MoELayer = CountingMoELayer
