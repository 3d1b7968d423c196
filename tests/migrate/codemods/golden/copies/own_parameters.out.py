# golden: unsafe
"""Parameters of its own that have names of the hook's, that look like a field of the context, or that nobody reads."""

from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel


def _forward(*, hidden_states, output_layer, context, **_):
    output_weight = context.extra.get("output_weight")
    teacher_ids = context.extra.get("teacher_ids")
    logits, _ = output_layer(hidden_states, weight=output_weight)
    log_probs = logits.log_softmax(-1).transpose(0, 1)
    return log_probs if teacher_ids is None else log_probs.gather(-1, teacher_ids)


def patch(model: GPTModel):
    attach(
        model,
        _forward,
        legacy={
            "output_weight": "output_weight",
            "teacher_ids": "extra.teacher_ids",
            "calculate_entropy": "calculate_entropy",
        },
    )
