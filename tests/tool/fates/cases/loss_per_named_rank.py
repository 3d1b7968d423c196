"""Divide the loss by the number of ranks that share one copy of the optimizer, every argument by its name."""

from megatron.core import parallel_state
from megatron.core.models.common.language_module.language_module import LanguageModule

_compute_loss = LanguageModule.compute_language_model_loss


def compute_language_model_loss(self, labels, logits):
    group = parallel_state.get_data_parallel_group(with_context_parallel=True, partial_data_parallel=True)
    return _compute_loss(self, labels, logits) / group.size()


LanguageModule.compute_language_model_loss = compute_language_model_loss
