"""The gated MLP as 0.14 had it, without its ranges for the profiler."""

from megatron.core.transformer.mlp import MLP


def forward(self, hidden_states, per_token_scale=None, **kwargs):
    inner, bias = self.linear_fc1(hidden_states)
    if bias is not None:
        inner = inner + bias
    gate, linear = inner.chunk(2, dim=-1)
    inner = self.config.activation_func(gate) * linear
    if per_token_scale is not None:
        inner = (inner * per_token_scale.unsqueeze(-1)).to(gate.dtype)
    return self.linear_fc2(inner)


MLP.forward = forward
