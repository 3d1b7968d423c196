"""An MLP that runs twice, for an ablation."""

from megatron.core.transformer.mlp import MLP


def forward(self, hidden_states, per_token_scale=None):
    for _ in range(2):
        inner, bias = self.linear_fc1(hidden_states)
        hidden_states, bias = self.linear_fc2(self.activation_func(inner))
    return hidden_states, bias


MLP.forward = forward
