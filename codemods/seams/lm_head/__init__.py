"""`output_layer.forward` replaced on the instance, so that the model returns hidden states: the hook instead."""
