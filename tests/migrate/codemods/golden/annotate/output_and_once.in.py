# golden: annotate
import types

from megatron.core.models.gpt.gpt_model import GPTModel


def install(model: GPTModel):
    def loss(self, labels, logits):
        return logits

    # ours
    model.compute_language_model_loss = types.MethodType(loss, model)
    if model.training: model.compute_language_model_loss = types.MethodType(loss, model)
