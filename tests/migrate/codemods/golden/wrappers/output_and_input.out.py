# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def residual(model: GPTModel):
    def positioned(_module, _args, kwargs, output):
        return output + kwargs["position_ids"].T[..., None] / 100

    model.embedding.register_forward_hook(positioned, with_kwargs=True)
