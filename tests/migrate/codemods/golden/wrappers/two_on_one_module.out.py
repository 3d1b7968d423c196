# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def squared(model: GPTModel):
    def squaring(_module, args, kwargs, out):
        hidden_states = args[0] if args else kwargs["hidden_states"]
        return out**2 + hidden_states

    model.decoder.register_forward_hook(squaring, with_kwargs=True)


def halved(model: GPTModel):
    def halving(_module, _args, output):
        return output / 2

    model.decoder.register_forward_hook(halving)
