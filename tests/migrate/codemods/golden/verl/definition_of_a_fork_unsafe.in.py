# golden: path=fork/models/mcore/mtp_patch.py unsafe select=MCU
"""MTP for our fork."""

from megatron.core.models.gpt.gpt_model import GPTModel


def patch_postprocess(model: GPTModel):
    model._postprocess_backup = model._postprocess
    model._postprocess = _our_postprocess.__get__(model, model.__class__)


def _our_postprocess(self, hidden_states, labels, **kwargs):
    mtp_loss = self.mtp(hidden_states, labels)
    logits, _ = self.output_layer(hidden_states)
    return logits + 0 * mtp_loss
