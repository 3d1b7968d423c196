# golden: unsafe
import torch

from megatron.core.models.gpt.gpt_model import GPTModel


def requires_gradient(model: GPTModel):
    for module in [model.decoder]:
        original_forward = module.forward

        def patched_forward(hidden_states, *args, _original_forward=original_forward, **kwargs):
            # so that the backward of a checkpoint is called
            if torch.is_tensor(hidden_states) and not hidden_states.requires_grad:
                hidden_states = hidden_states.detach().requires_grad_(True)
            return _original_forward(hidden_states, *args, **kwargs)

        module.forward = patched_forward
