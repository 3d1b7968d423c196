# golden: unsafe
"""A caller passes labels where Megatron has another parameter."""

from megatron.core.models.gpt.gpt_model import GPTModel


def _forward(self, input_ids, position_ids, attention_mask, labels=None):
    hidden = self.decoder(hidden_states=self.embedding(input_ids, position_ids), attention_mask=attention_mask)
    logits, _ = self.output_layer(hidden)
    return self.compute_language_model_loss(labels, logits)


def patch(model: GPTModel):
    model.forward = _forward.__get__(model, GPTModel)


def loss(model, input_ids, position_ids, labels):
    return model(input_ids, position_ids, None, labels)
