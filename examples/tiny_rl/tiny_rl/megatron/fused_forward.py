"""Log-probs and entropy straight from the decoder: the forward of every model chunk is replaced."""

from megatron.core.models.gpt import GPTModel
from megatron.core.utils import unwrap_model

from tiny_rl.losses import fused_log_probs


def patch_forward(model):
    model = unwrap_model(model)
    assert isinstance(model, GPTModel)
    if not hasattr(model, "forward_backup"):
        model.forward_backup = model.forward
        model.forward = _forward_with_log_probs.__get__(model, GPTModel)


def unpatch_forward(model):
    model = unwrap_model(model)
    if hasattr(model, "forward_backup"):
        model.forward = model.forward_backup
        del model.forward_backup


def _forward_with_log_probs(self, input_ids, position_ids, attention_mask, labels=None, temperature=1.0, **kwargs):
    hidden = self.decoder(hidden_states=self.embedding(input_ids, position_ids), attention_mask=attention_mask)
    return fused_log_probs(hidden, self.output_layer.weight, labels, temperature)
