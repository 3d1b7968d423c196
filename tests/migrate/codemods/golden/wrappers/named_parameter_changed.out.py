# golden: unsafe
import torch

from megatron.core.models.gpt.gpt_model import GPTModel


def requires_gradient(model: GPTModel):
    for module in [model.decoder]:

        def patched_forward(_module, args, kwargs):
            hidden_states = args[0] if args else kwargs.pop("hidden_states")
            # so that the backward of a checkpoint is called
            if torch.is_tensor(hidden_states) and not hidden_states.requires_grad:
                hidden_states = hidden_states.detach().requires_grad_(True)
            return (hidden_states, *args[1:]), kwargs

        module.register_forward_pre_hook(patched_forward, with_kwargs=True)
