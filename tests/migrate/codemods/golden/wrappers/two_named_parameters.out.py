# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def detach(model: GPTModel):
    def wrapped(_module, args, kwargs):
        hidden_states = args[0] if args else kwargs.pop("hidden_states")
        attention_mask = args[1] if len(args) > 1 else kwargs.pop("attention_mask")
        return (hidden_states.detach(), attention_mask, *args[2:]), kwargs

    model.decoder.register_forward_pre_hook(wrapped, with_kwargs=True)
