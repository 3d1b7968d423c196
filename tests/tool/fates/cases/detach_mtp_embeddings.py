"""The MTP layers do not train the embedding."""

from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer

_embeddings = MultiTokenPredictionLayer._get_embeddings


def _get_embeddings(self, *args, **kwargs):
    input_ids, position_ids, decoder_input, hidden_states = _embeddings(self, *args, **kwargs)
    return input_ids, position_ids, decoder_input.detach(), hidden_states


def install():
    MultiTokenPredictionLayer._get_embeddings = _get_embeddings
