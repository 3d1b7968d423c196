# golden: unsafe target=0.19
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer


def detach_layer(layer: MultiTokenPredictionLayer):
    layer.config.mtp_detach_heads = True
