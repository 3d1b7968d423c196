# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def scale_head(model: GPTModel, factor):
    def forward(_module, args, kwargs):
        input_ = args[0] if args else kwargs.pop("input_")
        weight = args[1] if len(args) > 1 else kwargs.pop("weight", None)
        input_ = input_ * factor
        return (input_,), {**kwargs, "weight": weight}

    model.output_layer.register_forward_pre_hook(forward, with_kwargs=True)


def fix_dtype(model: GPTModel):
    def forward(_module, args, kwargs):
        hidden_states = args[0] if args else kwargs.pop("hidden_states")
        return (hidden_states.to(model.decoder.final_layernorm.weight.dtype),), kwargs

    model.decoder.final_layernorm.register_forward_pre_hook(forward, with_kwargs=True)


def double(model: GPTModel):
    def doubled(_module, _args, output):
        return output * 2

    model.embedding.register_forward_hook(doubled)
