# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel

CALLS = []


def count(model: GPTModel, name):
    def counted(_module, _args):
        CALLS.append(name)

    model.decoder.register_forward_pre_hook(counted)
