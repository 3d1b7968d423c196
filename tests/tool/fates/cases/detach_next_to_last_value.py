"""The MTP layers do not train the embedding; its output is the last value but one."""

from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer

_embeddings = MultiTokenPredictionLayer._get_embeddings


def _get_embeddings(self, *args, **kwargs):
    *before, decoder_input, states = _embeddings(self, *args, **kwargs)
    return (*before, decoder_input.detach(), states)


MultiTokenPredictionLayer._get_embeddings = _get_embeddings
