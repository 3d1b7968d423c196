# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def detach_encoder(model: GPTModel):
    layer = model.decoder.layers[1]

    def detached(_module, args, kwargs):
        if "hidden_states" in kwargs:
            kwargs["hidden_states"] = kwargs["hidden_states"].detach()
        else:
            args = (args[0].detach(), *args[1:])
        return args, kwargs

    layer.register_forward_pre_hook(detached, with_kwargs=True)
