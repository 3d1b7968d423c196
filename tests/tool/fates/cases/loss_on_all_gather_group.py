"""Scale the loss by the ranks of the separate all-gather group, where one was made."""

from megatron.core import parallel_state
from megatron.core.models.common.language_module.language_module import LanguageModule

_compute_loss = LanguageModule.compute_language_model_loss


def _gathering_ranks():
    group = parallel_state.get_data_parallel_group(independent_all_gather=False)
    return group.size()


def compute_language_model_loss(self, labels, logits):
    return _compute_loss(self, labels, logits) * _gathering_ranks()


LanguageModule.compute_language_model_loss = compute_language_model_loss
