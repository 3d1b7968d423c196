# golden: unsafe
"""All models are patched; the calls are known by the parameter that only the patch takes."""

from mcore_unpatch.compat import call_with_processor


def _forward(*, hidden_states, output_layer, context, **_):
    temperature = 1.0 if context.temperature is None else context.temperature
    logits, _ = output_layer(hidden_states)
    return (logits / temperature).log_softmax(-1).transpose(0, 1)


def install():
    """Once per process."""


def log_softmax(model, batch, temperature):
    return call_with_processor(
        model,
        _forward,
        input_ids=batch["input_ids"],
        position_ids=batch["position_ids"],
        attention_mask=None,
        context={"temperature": temperature},
    )
