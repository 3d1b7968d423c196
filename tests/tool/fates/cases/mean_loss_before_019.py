"""Record the main loss beside those of the MTP layers; 0.19 renamed the tracker."""

import megatron.core
from megatron.core.models.common.language_module.language_module import LanguageModule
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
from packaging.version import Version

TRACKS_PLAIN_LOSSES = Version(megatron.core.__version__) < Version("0.19.0")


def install():
    compute_loss = LanguageModule.compute_language_model_loss

    def compute_and_record(self, labels, logits):
        loss = compute_loss(self, labels, logits)
        if TRACKS_PLAIN_LOSSES:
            MTPLossLoggingHelper.save_loss_to_tracker(loss.mean().detach(), 0, 1)
        return loss

    LanguageModule.compute_language_model_loss = compute_and_record
