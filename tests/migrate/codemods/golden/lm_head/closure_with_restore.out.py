# golden: unsafe
from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel

from fork.ops import chunked_log_probs


def log_probs(model: GPTModel, ids, labels):
    captured = {}
    layer = model.output_layer

    def passthrough(*, hidden_states, output_weight, **_):
        weight = output_weight
        captured["weight"] = weight
        return hidden_states.transpose(0, 1).contiguous()

    handle = attach(model, passthrough)
    try:
        hidden = model(ids, None, None)
    finally:
        handle.remove()
    return chunked_log_probs(hidden, captured["weight"], labels)
