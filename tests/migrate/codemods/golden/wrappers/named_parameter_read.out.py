# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def residual(model: GPTModel):
    def forward(_module, args, kwargs, output):
        hidden_states = args[0] if args else kwargs["hidden_states"]
        return output + hidden_states.detach()

    model.decoder.register_forward_hook(forward, with_kwargs=True)
