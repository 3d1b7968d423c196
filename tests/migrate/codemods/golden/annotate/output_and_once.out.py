# golden: annotate
import types

from megatron.core.models.gpt.gpt_model import GPTModel


def install(model: GPTModel):
    def loss(self, labels, logits):
        return logits

    # ours
    # TODO(mcore-unpatch): MCU104 pass `output_processor=` and
    #   `output_processor_context=` to `GPTModel.forward` (megatron-core 0.18+)
    #   https://github.com/mcore-unpatch/mcore-unpatch/blob/main/docs/rules/MCU104.md
    model.compute_language_model_loss = types.MethodType(loss, model)
    # TODO(mcore-unpatch): MCU104 pass `output_processor=` and
    #   `output_processor_context=` to `GPTModel.forward` (megatron-core 0.18+)
    #   https://github.com/mcore-unpatch/mcore-unpatch/blob/main/docs/rules/MCU104.md
    if model.training: model.compute_language_model_loss = types.MethodType(loss, model)
