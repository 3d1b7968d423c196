"""The MTP layers do not train the embedding; written out against the parameters of 0.16."""

from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer

_embeddings = MultiTokenPredictionLayer._get_embeddings


def _get_embeddings(self, input_ids, position_ids, embedding, hidden_states, packed_seq_params=None):
    ids, positions, decoder_input, states = _embeddings(
        self, input_ids, position_ids, embedding, hidden_states, packed_seq_params
    )
    return ids, positions, decoder_input.detach(), states


MultiTokenPredictionLayer._get_embeddings = _get_embeddings
