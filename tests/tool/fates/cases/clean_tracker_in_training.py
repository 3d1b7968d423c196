"""Start every training step with an empty tracker of MTP losses."""

from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

_forward = GPTModel.forward


def forward(self, *args, **kwargs):
    if self.training and MTPLossLoggingHelper.tracker:
        MTPLossLoggingHelper.clean_loss_in_tracker()
    return _forward(self, *args, **kwargs)


GPTModel.forward = forward
