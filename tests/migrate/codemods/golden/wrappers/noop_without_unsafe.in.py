from megatron.core.models.gpt.gpt_model import GPTModel

CALLS = []


def count(model: GPTModel, name):
    original = model.decoder.forward

    def counted(*args, **kwargs):
        CALLS.append(name)
        return original(*args, **kwargs)

    model.decoder.forward = counted
