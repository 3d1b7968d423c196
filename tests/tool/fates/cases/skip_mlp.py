"""Skip the MLP of every second layer."""

from megatron.core.transformer.transformer_layer import TransformerLayer

_forward_mlp = TransformerLayer._forward_mlp


def _forward_every_second(self, hidden_states, inference_context=None, padding_mask=None):
    if self.layer_number % 2 == 0:
        return hidden_states
    return _forward_mlp(self, hidden_states, inference_context, padding_mask)


def install():
    TransformerLayer._forward_mlp = _forward_every_second
