# golden: unsafe
"""The MTP loss is the copy's own: Megatron would add its loss as well."""

import torch
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler


def _postprocess(self, hidden_states, input_ids, position_ids, labels, attention_mask=None, **kwargs):
    hidden_states = self.mtp(
        input_ids=input_ids, position_ids=position_ids, hidden_states=hidden_states, attention_mask=attention_mask
    )
    hidden_states, *deeper = torch.chunk(hidden_states, 1 + self.config.mtp_num_layers)
    for one in deeper:
        loss = self.compute_language_model_loss(labels, self.output_layer(one)[0])
        hidden_states = MTPLossAutoScaler.apply(hidden_states, 0.1 * loss.mean())
    logits, _ = self.output_layer(hidden_states)
    return logits


def patch(model: GPTModel):
    model._postprocess = _postprocess.__get__(model, GPTModel)
