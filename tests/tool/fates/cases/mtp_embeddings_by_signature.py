"""The MTP layers do not train the embedding, with as many values as this release returns."""

import inspect

from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer

_embeddings = MultiTokenPredictionLayer._get_embeddings
HAS_PADDING_MASK = "padding_mask" in inspect.signature(_embeddings).parameters


def _get_embeddings(self, *args, **kwargs):
    if HAS_PADDING_MASK:
        ids, positions, mask, decoder_input, states = _embeddings(self, *args, **kwargs)
        return ids, positions, mask, decoder_input.detach(), states
    ids, positions, decoder_input, states = _embeddings(self, *args, **kwargs)
    return ids, positions, decoder_input.detach(), states


MultiTokenPredictionLayer._get_embeddings = _get_embeddings
