"""Recompute nothing although the configuration asks for it: the layers run once, and nothing negative leaves them."""

from megatron.core.transformer.transformer_block import TransformerBlock


def _run_layers(self, hidden_states, attention_mask, *args, rotary_pos_emb=None, **kwargs):
    for layer in self.layers:
        hidden_states, _ = layer(
            hidden_states=hidden_states, attention_mask=attention_mask, rotary_pos_emb=rotary_pos_emb
        )
    return hidden_states.abs()


TransformerBlock._checkpointed_forward = _run_layers
