# golden: unsafe path=tiny/megatron/lm_head.py
"""Hidden states instead of logits, for a fused loss."""

import types


def capture_hidden_states(model):
    output_layer = model.output_layer
    original = output_layer.forward
    output_layer.forward = types.MethodType(_passthrough, output_layer)
    try:
        yield
    finally:
        output_layer.forward = original


def _passthrough(self, input_, weight=None, runtime_gather_output=None):
    return input_, None
