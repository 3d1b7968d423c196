"""Record the main loss beside those of the MTP layers, while there is a tracker of plain losses."""

from megatron.core.models.common.language_module.language_module import LanguageModule
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

_compute_loss = LanguageModule.compute_language_model_loss


def compute_language_model_loss(self, labels, logits):
    loss = _compute_loss(self, labels, logits)
    if hasattr(MTPLossLoggingHelper, "save_loss_to_tracker"):
        MTPLossLoggingHelper.save_loss_to_tracker(loss.mean().detach(), 0, 1)
    return loss


LanguageModule.compute_language_model_loss = compute_language_model_loss
