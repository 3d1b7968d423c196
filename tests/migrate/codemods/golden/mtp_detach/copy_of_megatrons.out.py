# golden: unsafe target=0.18
from mcore_unpatch.compat import detach_mtp_inputs
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer


def detach_encoder(model):
    for layer in model.mtp.layers:
        if isinstance(layer, MultiTokenPredictionLayer):
            # The MTP loss must not train the policy.
            detach_mtp_inputs(layer)  # every depth
