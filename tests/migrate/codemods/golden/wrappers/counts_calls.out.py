# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel

CALLS = []


def count(model: GPTModel, name):
    def counted(_module, args, kwargs):
        CALLS.append(name)
        return args, kwargs

    model.decoder.register_forward_pre_hook(counted, with_kwargs=True)
