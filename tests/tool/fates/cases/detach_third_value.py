"""The MTP layers do not train the embedding; its output is the third value."""

from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer

_embeddings = MultiTokenPredictionLayer._get_embeddings


def _get_embeddings(self, *args, **kwargs):
    values = list(_embeddings(self, *args, **kwargs))
    values[2] = values[2].detach()
    return tuple(values)


MultiTokenPredictionLayer._get_embeddings = _get_embeddings
