# golden: unsafe
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer


def detach_encoder(model):
    for layer in model.mtp.layers:
        detach_layer(layer)


def detach_layer(layer: MultiTokenPredictionLayer):
    original = layer._get_embeddings

    def hidden_states_alone(*args, **kwargs):
        *tokens, embeddings, hidden_states = original(*args, **kwargs)
        return *tokens, embeddings, hidden_states.detach()

    layer._get_embeddings = hidden_states_alone
