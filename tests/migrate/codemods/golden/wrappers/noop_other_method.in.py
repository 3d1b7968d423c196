# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def record(model: GPTModel, seen):
    original = model.decoder._checkpointed_forward

    def wrapped(*args, **kwargs):
        out = original(*args, **kwargs)
        seen.append(out)
        return out

    model.decoder._checkpointed_forward = wrapped
