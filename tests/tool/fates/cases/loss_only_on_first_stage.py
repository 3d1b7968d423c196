"""Half of the loss where a model chunk is not the first."""

from megatron.core import parallel_state
from megatron.core.models.common.language_module.language_module import LanguageModule

_compute_loss = LanguageModule.compute_language_model_loss


def compute_language_model_loss(self, labels, logits):
    loss = _compute_loss(self, labels, logits)
    return loss if parallel_state.is_pipeline_first_stage() else loss / 2


LanguageModule.compute_language_model_loss = compute_language_model_loss
