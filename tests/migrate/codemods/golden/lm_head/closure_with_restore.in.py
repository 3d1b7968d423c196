# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel

from fork.ops import chunked_log_probs


def log_probs(model: GPTModel, ids, labels):
    captured = {}
    layer = model.output_layer
    original = layer.forward

    def passthrough(hidden_states, weight=None, runtime_gather_output=None):
        captured["weight"] = weight
        return hidden_states, None

    layer.forward = passthrough
    try:
        hidden = model(ids, None, None)
    finally:
        layer.forward = original
    return chunked_log_probs(hidden, captured["weight"], labels)
