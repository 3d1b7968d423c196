# golden: unsafe
from mcore_unpatch.compat import detach_mtp_inputs
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer


def detach_encoder(model):
    for layer in model.mtp.layers:
        detach_layer(layer)


def detach_layer(layer: MultiTokenPredictionLayer):
    detach_mtp_inputs(layer, embeddings=False)
