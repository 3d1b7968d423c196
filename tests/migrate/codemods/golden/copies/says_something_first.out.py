# golden: unsafe
"""Imports, checks and logs before the decoder may as well come behind it."""

import logging

from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel

logger = logging.getLogger(__name__)


def _forward(*, hidden_states, output_layer, labels, input_ids, context, **_):
    from math import log2

    temperature = 1.0 if context.temperature is None else context.temperature
    # Or everything is infinite.
    assert temperature > 0, "temperature"
    if labels is None:
        raise ValueError("labels are needed")
    batch, length = input_ids.shape
    logger.debug("hidden states of %s sequences", batch)
    logits, _ = output_layer(hidden_states)
    return (logits / temperature).view(length, batch, -1) * log2(length)


def patch(model: GPTModel):
    attach(model, _forward, legacy={"temperature": "temperature"})
