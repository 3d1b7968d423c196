"""Divide the loss by the number of ranks that share one copy of the optimizer; the counting is done elsewhere."""

from megatron.core import parallel_state as mpu
from megatron.core.models.common.language_module.language_module import LanguageModule


def _ranks_with_context():
    return mpu.get_data_parallel_world_size(True, True)


def _share(loss):
    return loss / _ranks_with_context()


def install():
    compute_loss = LanguageModule.compute_language_model_loss

    def compute_share(self, labels, logits):
        return _share(compute_loss(self, labels, logits))

    LanguageModule.compute_language_model_loss = compute_share
