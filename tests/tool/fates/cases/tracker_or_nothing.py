"""Record the main loss with the MTP losses, and go on where that is not possible."""

from megatron.core.models.common.language_module.language_module import LanguageModule
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

unrecorded = []
_compute_loss = LanguageModule.compute_language_model_loss


def compute_language_model_loss(self, labels, logits):
    loss = _compute_loss(self, labels, logits)
    try:
        MTPLossLoggingHelper.save_loss_to_tracker(loss.mean().detach(), 0, 1)
    except AttributeError:
        unrecorded.append(loss.mean().item())
    return loss


LanguageModule.compute_language_model_loss = compute_language_model_loss
