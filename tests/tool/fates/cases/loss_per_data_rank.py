"""Divide the loss by the number of ranks that share one copy of the optimizer."""

from megatron.core import parallel_state
from megatron.core.models.common.language_module.language_module import LanguageModule

_compute_loss = LanguageModule.compute_language_model_loss


def compute_language_model_loss(self, labels, logits):
    ranks = parallel_state.get_data_parallel_group(True, True).size()
    return _compute_loss(self, labels, logits) / ranks


LanguageModule.compute_language_model_loss = compute_language_model_loss
