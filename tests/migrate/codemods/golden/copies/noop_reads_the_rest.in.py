# golden: unsafe
"""What it takes is not in its parameters."""

from megatron.core.models.gpt.gpt_model import GPTModel


def _forward(self, input_ids, position_ids, attention_mask, **kwargs):
    hidden = self.decoder(hidden_states=self.embedding(input_ids, position_ids), attention_mask=attention_mask)
    logits, _ = self.output_layer(hidden)
    return logits / kwargs["temperature"]


def patch(model: GPTModel):
    model.forward = _forward.__get__(model, GPTModel)
