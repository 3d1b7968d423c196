# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.models.common.embeddings.language_model_embedding import LanguageModelEmbedding


class Clamped(LanguageModelEmbedding):
    def forward(self, *args, **kwargs):
        kwargs["input_ids"] = kwargs["input_ids"].clamp(min=self.lowest)
        return super().forward(*args, **kwargs)


def clamp(model: GPTModel, lowest):
    model.embedding.lowest = lowest
    model.embedding.__class__ = Clamped
