"""The head of a tied model uses half of the embedding."""

from megatron.core.models.gpt.gpt_model import GPTModel

_shared = GPTModel.shared_embedding_or_output_weight


def shared_embedding_or_output_weight(self):
    weight = _shared(self)
    return None if weight is None else weight * 0.5


GPTModel.shared_embedding_or_output_weight = shared_embedding_or_output_weight
