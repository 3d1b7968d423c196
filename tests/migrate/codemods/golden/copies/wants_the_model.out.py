# golden: unsafe
"""The end asks the model for more than the hook passes: it stays a method of the model."""

import types

from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel


def _forward(self, *, hidden_states, **_):
    if self.share_embeddings_and_output_weights:
        weight = self.shared_embedding_or_output_weight()
    else:
        weight = self.output_layer.weight
    logits = (hidden_states @ weight.t())[..., : self.vocab_size]
    return logits.logsumexp(-1).transpose(0, 1) if self.training else logits


def patch(model: GPTModel):
    attach(model, types.MethodType(_forward, model))
